"""LoRA on a small language model, by pe and by PyTorch: loss and accuracy on new texts, time per step, peak memory and installed size.

The model has no weights of elsewhere: PyTorch trains one first, a Llama of transformers with 0.1 million numbers, on sentences that a
grammar makes up. Both programs then adapt it to sentences of another grammar by the same low-rank
matrices beside queries and values, with the same rows, optimizer and number of steps, each seed anew.

    python benchmarks/language_tuning.py --peer TORCH/bin/python

The environment TORCH has `pip install torch transformers safetensors`. Times count on an idle machine alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from fine_tuning import HERE, RUN, size_of, watched

LENGTH, BATCH, EPOCHS, RATE, RANK, ALPHA = 32, 16, 4, 0.005, 8, 16
WORDS = {
    "who": ["the cat", "a guest", "my sister", "the cook", "nobody", "an old man"],
    "does": ["sees", "likes", "carries", "finds", "paints", "sells"],
    "what": ["a red boat", "the soup", "two chairs", "an apple", "the map", "our house"],
    "where": ["in the garden", "near the station", "by the lake", "at home", "on the hill"],
}
#: How the parts of a sentence follow one another: in the texts that the model has learned, and in those that it is adapted to.
FIRST, SECOND = ("who", "does", "what", "where"), ("where", "what", "does", "who")
CONFIG = f"""\
model: {{file: MODEL/model.yaml, args: {{length: {LENGTH}}}}}
data:
  train: {{reader: npz, file: train.npz, shuffle: true}}
  eval: {{reader: npz, file: eval.npz}}
feeds: {{input_ids: input_ids, next: next}}
train:
  loss: loss
  epochs: {EPOCHS}
  batch_size: {BATCH}
  optimizer: {{type: Adam, learning_rate: {RATE}}}
  init: {{from: MODEL/params.safetensors}}
  adapt: {{type: lora, rank: {RANK}, alpha: {ALPHA}, targets: ["*/query", "*/value"]}}
fetches: {{loss: {{every: 1 epoch}}}}
"""


def rows(seed: int, count: int, order: tuple[str, ...]) -> dict[str, np.ndarray]:
    """Return bytes of made-up sentences, in rows of one length, and those that follow each."""
    rng = np.random.default_rng(seed)
    text = b""
    while len(text) <= count * LENGTH:
        text += (" ".join(str(rng.choice(WORDS[part])) for part in order) + ". ").encode()
    ids = np.frombuffer(text[: count * LENGTH + 1], np.uint8).astype(np.int64)
    return {"input_ids": ids[:-1].reshape(count, LENGTH), "next": ids[1:].reshape(count, LENGTH)}


def ours(folder: Path, seed: int) -> dict[str, float]:
    """Adapt with pe; return the loss and the share of bytes that it tells on new texts, ms per step and MB."""
    run = folder / f"runs-{seed}"
    options = ["-o", f"executor.seed={seed}", "-o", f"output.dir={run}", "-o", "executor.devices=1"]
    _, _, peak = watched([sys.executable, "-c", RUN, "train", "tune.yaml", "--quiet", *options], folder)
    (made,) = run.iterdir()
    seconds = [json.loads(line)["seconds"] for line in (made / "speed.jsonl").read_text().splitlines()]
    times = [after - before for before, after in itertools.pairwise(seconds)]
    out = folder / f"said-{seed}.npz"
    watched([sys.executable, "-c", RUN, "predict", str(made), "--split", "eval", "--fetch", "logits", "--out", str(out)], folder)
    scores, wanted = np.load(out)["logits"].astype(float), np.load(folder / "eval.npz")["next"]
    scores -= scores.max(-1, keepdims=True)
    told = np.take_along_axis(scores - np.log(np.exp(scores).sum(-1, keepdims=True)), wanted[..., None], -1)
    share = float((scores.argmax(-1) == wanted).mean())
    return {"loss": float(-told.mean()), "accuracy": share, "ms": 1000 * statistics.median(times), "mb": peak}


def main() -> None:
    """Run both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON", required=True, help="of an environment with torch, transformers and safetensors")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, seed, count, order in (("first", 1, 800, FIRST), ("train", 2, 256, SECOND), ("eval", 3, 256, SECOND)):
            np.savez(folder / f"{name}.npz", **rows(seed, count, order))
        peer = [options.peer, str(HERE / "language_tuning_peer.py"), str(folder)]
        before = json.loads(watched([*peer, "make"], folder)[0].strip().splitlines()[-1])
        watched([sys.executable, "-c", RUN, "import", "llama", "-o", "MODEL"], folder)
        (folder / "tune.yaml").write_text(CONFIG)
        found: dict[str, list[dict[str, float]]] = {"pe": [ours(folder, seed) for seed in range(options.seeds)], "PyTorch": []}
        for seed in range(options.seeds):
            facts = map(str, ("adapt", BATCH, EPOCHS, RATE, RANK, ALPHA, seed))
            text, _, peak = watched([*peer, *facts], folder)
            found["PyTorch"].append({**json.loads(text.strip().splitlines()[-1]), "mb": peak})
    sizes = {"pe": size_of(sys.executable, "pe-cli"), "PyTorch": size_of(options.peer, "torch transformers safetensors")}
    sys.stdout.write(f"before: loss {before['loss']:.3f}, accuracy {before['accuracy']:.3f}\n")
    for name, each in found.items():
        losses = [row["loss"] for row in each]
        text = f"{name:<8} loss {statistics.mean(losses):.3f} ({min(losses):.3f} to {max(losses):.3f})"
        text += f"  accuracy {statistics.mean(row['accuracy'] for row in each):.3f}"
        text += f"  {statistics.median(row['ms'] for row in each):.1f} ms a step"
        sys.stdout.write(f"{text}  {max(row['mb'] for row in each):.0f} MB  {sizes[name]:.0f} MB installed\n")


if __name__ == "__main__":
    main()
