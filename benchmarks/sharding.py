"""Plan, without running it, how large a model `reduce_strategy: Shard` lets processes train, and what network hides its messages.

Usage: python benchmarks/sharding.py [--write]

The models are the decoder of models/gpt.yaml with 1,024 positions, 32,000 tokens and AdamW, one text on each process. Memory is what
`pe check` plans for a process: parameters, gradients, state, what is gathered, and the step's own. Nothing of it is allocated.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import report

from pe_cli.build.build import build
from pe_cli.config.load import load_run
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.execute.diagnostics.estimate import estimate_memory

PAGE = report.ROOT / "docs" / "scaling.md"
MARKS = ("<!-- sharding: made by benchmarks/sharding.py -->", "<!-- end of sharding -->")
#: Width and layers of decoders, those of GPT-2, GPT-3 and Llama of that size.
MODELS = ((768, 12), (2048, 24), (4096, 32), (5120, 40), (7168, 48), (8192, 80))
PROCESSES = (8, 64)
LENGTH, TOKENS, HEAD = 1024, 32_000, 128
#: Operations a second that a process computes with, in products of float32: two cores with AVX-512, and a card in tf32.
RATES = {"two cores, 0.4 TFLOP/s": 0.4e12, "a card, 300 TFLOP/s": 300e12}
#: Bits a second between processes.
NETWORKS = {"1 Gbit/s": 1e9, "10 Gbit/s": 10e9, "100 Gbit/s": 100e9, "3,600 Gbit/s (NVLink)": 3.6e12}
CONFIG = """\
model: {file: FILE, args: {length: LENGTH, tokens: TOKENS, width: WIDTH, wide: WIDE, heads: HEADS, layers: LAYERS, dropout: 0.0}}
data:
  train: {reader: synthetic, samples: COUNT, fields: {tokens: FIELD, next: FIELD}}
train: {loss: loss, epochs: 1, batch_size: COUNT, optimizer: {type: AdamW, weight_decay: 0.1, learning_rate: 0.001}, recompute: KEPT}
executor: {devices: 1, processes: COUNT}
"""
GIB = 1 << 30


def planned(width: int, layers: int, processes: int, way: str, recompute: str = "~") -> tuple[int, int]:
    """Return the parameters of a model, and the bytes of the first of some processes."""
    values = {
        "FILE": report.ROOT / "models" / "gpt.yaml", "LENGTH": LENGTH, "WIDTH": width, "WIDE": 4 * width, "LAYERS": layers,
        "HEADS": max(1, width // HEAD), "COUNT": processes, "FIELD": "{shape: [LENGTH], dtype: int64, classes: TOKENS}",
    }  # fmt: skip
    text = CONFIG.replace("KEPT", recompute).replace("FIELD", str(values.pop("FIELD")))
    for name, value in (values | {"TOKENS": TOKENS}).items():
        text = text.replace(name, str(value))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_text(text, encoding="utf-8")
        run = load_run(path, [])
        program = build(run.model, run).train
    strategy = BuildStrategy(reduce_strategy=way)
    (found,) = estimate_memory(program, [Place("cpu", 0)], processes, build=strategy, fetches=["loss"], processes=processes)
    return sum(v.type.size for v in program.parameters()), found.own


def hidden(rate: float, bits: float) -> int:
    """Return the tokens of a process in a step from which on its messages take no longer than its products.

    Six operations are done for each parameter and token; of each parameter 12 bytes come and go: twice when it is gathered, and once when
    its gradients are scattered.
    """
    return round(12 / (bits / 8) / (6 / rate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the tables into docs/scaling.md")
    asked = parser.parse_args()
    rows = []
    for width, layers in MODELS:
        count, whole = planned(width, layers, PROCESSES[-1], "AllReduce")
        parts = [planned(width, layers, size, "Shard")[1] for size in PROCESSES]
        parts.append(planned(width, layers, PROCESSES[-1], "Shard", "blocks")[1])
        rows.append([f"{count / 1e9:.1f} billion, {layers} layers of {width:,}", *(f"{nbytes / GIB:,.1f}" for nbytes in (whole, *parts))])
        print("  ".join(rows[-1]), flush=True)
    head = ("parameters", "AllReduce, GiB", *(f"Shard over {size}" for size in PROCESSES), f"{PROCESSES[-1]}, with recompute: blocks")
    memory = report.markdown(head, rows)
    lines = [[name, *(f"{hidden(rate, bits):,}" for bits in NETWORKS.values())] for name, rate in RATES.items()]
    tokens = report.markdown(("a process", *NETWORKS), lines)
    print(tokens)
    if asked.write:
        said = "Tokens of a process in a step from which on messages can hide:"
        report.replace(PAGE, MARKS, f"Memory of a process:\n\n{memory}\n\n{said}\n\n{tokens}")


if __name__ == "__main__":
    main()
