"""Measure training over processes on hosts with a slow network, beside PyTorch DDP, fit the model of what it costs, and predict with it.

    python benchmarks/distributed.py --write          as root: measures, keeps benchmarks/distributed.json, writes docs/scaling.md
    python benchmarks/distributed.py --kept --write   without root: predicts anew from the figures that are kept
    python benchmarks/distributed.py --overlap 1000   as root, in some minutes: how much hides at 1,000 Mbit/s, on a machine that is idle

Hosts are network namespaces with a limit on what each sends (`distributed_hosts.py`). Bytes and packets are those that their interfaces
have counted, messages those that were given to MPI. Computing is timed in seconds of the processor, in one process alone, so that others
on the machine do not count; steps and sums are timed by the clock, on networks so slow that they wait for those most of the time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distributed_hosts
import distributed_page
import report
from distributed_hosts import Hosts

HERE = Path(__file__).resolve().parent
KEPT = HERE / "distributed.json"
#: The model that is trained: fully connected layers of one width, and 10 classes; samples of each process where the network is the
#: limit, and where a step computes about as long as it sends.
LAYERS, WIDTH, FEW, MANY = 16, 384, 16, 4096
#: Layers and width of the model whose overlap is measured at a rate that is given, and samples of each process at first.
FAST_LAYERS, FAST_WIDTH, PROBE = 8, 1536, 128
#: Bytes of sums alone, and of the one that shows what software takes for a byte.
SIZES, LARGE = (1 << 10, 1 << 20, 4 << 20), 32 << 20
#: How many times as long as computing sums take, where it is measured how much of them hides.
RATIOS = (0.5, 1.0, 2.0)
#: Megabytes of DDP's buckets: its default, and those that pe makes of this model.
DDP_BUCKETS = (25.0, 2.0)
#: Seconds that a group of processes may take.
PATIENCE = 400.0

MODEL = "name: wide\nfeeds: {{x: {{shape: [{width}]}}, y: {{shape: [1], dtype: int64}}}}\nlayers:\n{layers}fetches: [loss]\n"
CONFIG = """\
model: wide.yaml
data:
  train:
    {{reader: synthetic, samples: {samples}, seed: 1, fields: {{x: {{shape: [{width}]}}, y: {{shape: [1], dtype: int64, classes: 10}}}}}}
train: {{loss: loss, epochs: 1, batch_size: {samples}, optimizer: {{type: SGD, learning_rate: 0.01}}}}
executor: {{devices: 1, seed: 1, processes: mpi}}
"""


class Bench:
    """Runs groups of processes on hosts.

    Args:
        hosts: that are up.
        folder: for configs.
        repeats: steps or sums that are timed.
        layers: of the model.
        width: of each layer.
    """

    def __init__(self, hosts: Hosts, folder: Path, repeats: int, layers: int = LAYERS, width: int = WIDTH) -> None:
        self._hosts, self._folder, self._repeats, self._layers, self._width = hosts, folder, repeats, layers, width
        lines = [f"  h{i}: {{type: fc, input: {f'h{i - 1}' if i else 'x'}, size: {width}, act: relu}}\n" for i in range(layers)]
        lines.append(f"  out: {{type: fc, input: h{layers - 1}, size: 10}}\n")
        lines.append("  each: {type: softmax_with_cross_entropy, logits: out, label: y}\n  loss: {type: mean, x: each}\n")
        (folder / "wide.yaml").write_text(MODEL.format(width=width, layers="".join(lines)))

    def steps(self, size: int, batch: int, *, beside: int = 1) -> dict[str, Any]:
        """Return steps of pe over so many processes with so many samples each; or of one, with others `beside` it that train alone."""
        config = self._folder / f"config{size * batch}.yaml"
        config.write_text(CONFIG.format(samples=size * batch, width=self._width))
        return self._ours(size, "--config", str(config), beside=beside)

    def sums(self, size: int, nbytes: Sequence[int]) -> dict[str, dict[str, Any]]:
        """Return sums alone of arrays of so many bytes."""
        found: dict[str, dict[str, Any]] = self._ours(size, "--sums", *map(str, nbytes))["sums"]
        return found

    def _ours(self, size: int, *arguments: str, beside: int = 1) -> dict[str, Any]:
        script = [sys.executable, str(HERE / "distributed_rank.py"), "--repeats", str(self._repeats), *arguments]
        if size > 1:
            mpiexec = str(Path(sys.executable).parent / "mpiexec")
            ssh = ["-launcher", "ssh", "-launcher-exec", str(self._hosts.ssh)]
            script = [mpiexec, *ssh, "-hosts", ",".join(self._hosts.addresses[:size]), "-n", str(size), *script]
        return self._joined([[*self._hosts.inside(i), *script] for i in range(beside)], size * beside)

    def ddp(self, size: int, batch: int, bucket_mb: float, *, beside: int = 1) -> dict[str, Any]:
        """Return steps of PyTorch DDP over gloo; see `steps`."""
        common = ["--size", str(size), "--master", self._hosts.addresses[0], "--layers", str(self._layers), "--width", str(self._width)]
        common += ["--batch", str(batch), "--bucket-mb", str(bucket_mb), "--repeats", str(self._repeats)]
        script = [sys.executable, str(HERE / "distributed_peer.py"), *common]
        ranks = range(size) if size > 1 else [0] * beside
        return self._joined([[*self._hosts.inside(i), *script, "--rank", str(r)] for i, r in enumerate(ranks)], len(ranks))

    def _joined(self, commands: Sequence[Sequence[str]], size: int) -> dict[str, Any]:
        """Run commands side by side; return what the first process printed, with the greatest counts of all."""
        facts = {"UCX_TLS": "tcp,self", "PYTHONPATH": f"{HERE.parent}:{os.environ.get('PYTHONPATH', '')}"}
        running = [
            subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | facts) for c in commands
        ]
        texts = []
        try:
            texts = [p.communicate(timeout=PATIENCE)[0] for p in running]
        finally:
            for p in running:
                p.kill()
        lines = [json.loads(line) for text in texts for line in text.splitlines() if line.startswith('{"rank"')]
        if len(lines) != size:
            raise SystemExit(f"of {size} processes {len(lines)} have ended well: {' '.join(commands[0])}\n" + "\n".join(texts)[-3000:])
        lines.sort(key=lambda found: found["rank"])
        return _greatest(lines)


def _greatest(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the first of what processes printed, with the counts of the one that sent the most."""
    first = dict(lines[0])
    if "sums" in first:
        return first | {"sums": {key: _greatest([line["sums"][key] for line in lines]) for key in first["sums"]}}
    for key in ("bytes", "packets", "messages"):
        first[key] = max(line[key] for line in lines)
    return first


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Measure everything; return the figures."""
    sizes = list(range(1, args.hosts + 1))
    with distributed_hosts.hosts(max(args.hosts, args.held_out)) as hosts, tempfile.TemporaryDirectory() as folder:
        bench = Bench(hosts, Path(folder), args.repeats)
        say("what the software takes for a byte, without a limit")
        large = bench.sums(2, [LARGE])[str(LARGE)]
        hosts.limit(args.rate)
        found: dict[str, Any] = {
            "about": about(args), "layers": LAYERS, "width": WIDTH, "gradients": 4 * parameters(), "rate": args.rate,
            "handling": large["cpu"] / large["bytes"], "sums": {}, "steps": {}, "ddp": {},
        }  # fmt: skip
        for size in [*sizes, args.held_out]:
            say(f"{size} processes at {args.rate:g} Mbit/s")
            if size > 1:
                found["sums"][str(size)] = bench.sums(size, SIZES)
            found["steps"][str(size)] = bench.steps(size, FEW)
            found["ddp"][str(size)] = bench.ddp(size, FEW, DDP_BUCKETS[1])
        found["overlap"] = overlap(bench, hosts)
    return rounded(found)


def rounded(found: Any) -> Any:
    """Return figures with six digits, which is more than they are worth."""
    if isinstance(found, dict):
        return {key: rounded(value) for key, value in found.items()}
    if isinstance(found, list):
        return [rounded(value) for value in found]
    return float(f"{found:.6g}") if isinstance(found, float) else found


def overlap(bench: Bench, hosts: Hosts) -> list[dict[str, Any]]:
    """Measure steps of two processes whose sums take half as long as computing, as long, and twice as long.

    Computing is that of two processes side by side which do not know of each other: they share the machine as those do that train together.
    """
    say("overlap, 2 processes")
    nbytes = 4 * parameters()
    alone = bench.steps(1, MANY, beside=2)
    found: list[dict[str, Any]] = []
    for ratio in RATIOS:
        rate = max(1.0, round(nbytes * 8e-6 / median(alone) / ratio))
        say(f"at {rate:g} Mbit/s")
        hosts.limit(rate)
        # the machine is not as busy at all times, so that everything is timed anew
        each: dict[str, Any] = {"rate": rate, "pe alone": bench.steps(1, MANY, beside=2), "pe": bench.steps(2, MANY)}
        count = each["pe"]["buckets"]
        each["sums"] = count * median(next(iter(bench.sums(2, [nbytes // count // 4 * 4]).values())))
        each["ddp alone"] = bench.ddp(1, MANY, DDP_BUCKETS[0], beside=2)
        for bucket in DDP_BUCKETS:
            each[f"ddp {bucket:g}"] = bench.ddp(2, MANY, bucket)
        found.append(each)
    return found


def overlap_at(rate: float, repeats: int) -> list[dict[str, Any]]:
    """Measure steps of two processes at a rate, with batches that take half as long as the sums, as long, and twice as long."""
    nbytes = 4 * parameters(FAST_LAYERS, FAST_WIDTH)
    with distributed_hosts.hosts(2) as hosts, tempfile.TemporaryDirectory() as folder:
        bench = Bench(hosts, Path(folder), repeats, FAST_LAYERS, FAST_WIDTH)
        hosts.limit(rate)
        say(f"{nbytes * 1e-6:.0f} MB of gradients at {rate:g} Mbit/s, {PROBE} samples")
        probe, count = median(bench.steps(1, PROBE, beside=2)), bench.steps(2, PROBE)["buckets"]
        found: list[dict[str, Any]] = []
        for ratio in RATIOS:
            sums = count * median(next(iter(bench.sums(2, [nbytes // count // 4 * 4]).values())))
            batch = max(16, round(PROBE * ratio * sums / probe / 16) * 16)
            say(f"{batch} samples")
            found.append({"rate": rate, "sums": sums, "pe alone": bench.steps(1, batch, beside=2), "pe": bench.steps(2, batch)})
    return found


def parameters(layers: int = LAYERS, width: int = WIDTH) -> int:
    """Return the numbers that are trained."""
    return layers * (width * width + width) + 10 * width + 10


def median(found: dict[str, Any]) -> float:
    """Return the seconds of a step or sum by the clock."""
    return statistics.median(found["seconds"])


def about(args: argparse.Namespace) -> dict[str, Any]:
    import importlib.metadata

    import mpi4py
    import numpy
    import torch

    return {
        "processor": report.processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version(),
        "numpy": numpy.__version__, "mpi4py": mpi4py.__version__, "library": f"MPICH {importlib.metadata.version('mpich')}",
        "torch": torch.__version__, "repeats": args.repeats,
        "hosts": args.hosts, "held_out": args.held_out, "few": FEW, "many": MANY,
    }  # fmt: skip


def say(text: str) -> None:
    """Tell what is being measured."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=4, help="hosts that the model is fitted on, at most")
    parser.add_argument("--held-out", type=int, default=8, help="hosts that it is checked on")
    parser.add_argument("--rate", type=float, default=50.0, help="Mbit/s that each host may send")
    parser.add_argument("--repeats", type=int, default=4, help="steps or sums that are timed")
    parser.add_argument("--overlap", type=float, metavar="RATE", help="measure the overlap at so many Mbit/s, and nothing else")
    parser.add_argument("--kept", action="store_true", help="measure nothing: take the figures of benchmarks/distributed.json")
    parser.add_argument("--json", action="store_true", help="print figures, fit and predictions as JSON instead of tables")
    parser.add_argument("--write", action="store_true", help="write docs/scaling.md and its picture, and keep what was measured")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # hosts are taken down, also where somebody ends this
    if not 2 <= args.hosts < args.held_out <= 64 or args.rate <= 0 or args.repeats < 1:
        parser.error("--hosts must be at least 2, --held-out more than that and at most 64, --rate and --repeats more than 0")
    reason = distributed_hosts.can()
    if reason and not args.kept:
        sys.exit(f"distributed.py: nothing can be measured: {reason}\nhint: --kept predicts from the figures in {KEPT}, without root")
    if args.overlap is not None:
        if args.overlap <= 0 or args.kept or args.write:
            parser.error("--overlap is more than 0, and goes with neither --kept nor --write")
        found = {"overlap": rounded(overlap_at(args.overlap, args.repeats))}
        print(json.dumps(found, indent=1) if args.json else distributed_page.overlap(found))
        return
    found = json.loads(KEPT.read_text(encoding="utf-8")) if args.kept else measure(args)
    judged = distributed_page.judge(found)
    if args.write:
        if not args.kept:
            KEPT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        distributed_page.write(found, judged)
    print(json.dumps(found | judged, indent=1) if args.json else distributed_page.text(found, judged))


if __name__ == "__main__":
    main()
