"""Run pe and PyTorch on the workloads in turn, check that their losses agree, and write docs/performance.md's table.

Usage: python benchmarks/run.py [--only mlp,lenet] [--repeats 3] [--steps 50] [--compile] [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import chart
import workloads

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("<!-- table: made by benchmarks/run.py -->", "<!-- end of table -->")


def run(command: list[str]) -> dict:
    """Run a command and return the JSON of its last line."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def pe(name: str, size: int, steps: int, folder: Path, extra: list[str]) -> dict:
    """Run `pe bench` on a workload with the shared arrays."""
    data, init = workloads.write(folder, name, size)
    split = "eval" if name == "chain" else "train"
    command = [sys.executable, "-m", "pe_cli.cli.main", "bench", f"configs/bench/{name}.yaml", "--json"]
    command += ["--steps", str(steps), "--warmup", "5", "-o", f"data.{split}={{reader: npz, file: '{data}'}}"]
    if name != "chain":
        command += ["--init", str(init), "-o", f"train.batch_size={size}"]
    return run([*command, *extra])


def torch(name: str, size: int, steps: int, threads: int, extra: list[str]) -> dict:
    """Run PyTorch on a workload."""
    command = [sys.executable, str(ROOT / "benchmarks" / "torch_peer.py"), name, "--batch", str(size)]
    command += ["--steps", str(steps), "--threads", str(threads)]
    return run([*command, *extra])


def agree(a: dict, b: dict, name: str) -> None:
    """Stop when the losses differ: a fast wrong step does not count."""
    for key, most in (("loss_first", 1e-4), ("loss_last", 1e-2)):
        # of the loss at the start: near 0 losses have few digits in common, and Adam's epsilon stands elsewhere in PyTorch
        if abs(a[key] - b[key]) > most * abs(b["loss_first"]):
            sys.exit(f"{name}: {key} is {a[key]} with pe and {b[key]} with PyTorch")


def ways(name: str, compiled: bool) -> list[str]:
    """Return how PyTorch runs a workload: as it is, and with options of torch_peer.py."""
    own = {"lenet": ["channels last"], "resnet20": ["channels last"], "ctr": ["dense"]}.get(name, [])
    return ["", *own, *["compile"] * (compiled and name != "chain")]


def compare(name: str, size: int, args: argparse.Namespace, folder: Path) -> dict:
    """Run both sides in turn and return medians over repeats."""
    cores = len(os.sched_getaffinity(0))
    ours: dict[str, list[float]] = {"pe": [], "pe, 1 thread": []}
    theirs: dict[str, list[float]] = {}
    row: dict = {}
    for _ in range(args.repeats):
        mine = pe(name, size, args.steps, folder, [])
        ours["pe"].append(mine["ms_per_step"]["median"])
        one = pe(name, size, args.steps, folder, ["-o", "executor.devices=1"])
        ours["pe, 1 thread"].append(one["ms_per_step"]["median"])
        for threads in sorted({1, cores}):
            for way in ways(name, args.compile):
                peer = torch(name, size, args.steps, threads, [f"--{way.replace(' ', '-')}"] if way else [])
                agree(one, peer, f"{name} {size}")  # several devices normalise their own halves of a batch
                key = ", ".join([f"{threads} thread{'s' * (threads > 1)}", *filter(None, [way])])
                theirs.setdefault(key, []).append(peer["ms_per_step"]["median"])
        row |= {"rss": mine["peak_rss_mb"], "peer_rss": peer["peak_rss_mb"], "peer": peer["peer"]}
        row |= {"start": mine["import_s"] + mine["first_step_s"], "peer_start": peer["import_s"] + peer["first_step_s"]}
    best = min(theirs, key=lambda k: statistics.median(theirs[k]))
    row |= {"name": name, "size": size, "best": best, "theirs": statistics.median(theirs[best])}
    row |= {"ours": statistics.median(ours["pe"]), "one": statistics.median(ours["pe, 1 thread"])}
    print(f"{name:9} {size:5}  pe {row['ours']:8.3f} ms  1 device {row['one']:8.3f} ms  PyTorch {row['theirs']:8.3f} ms ({best})"
          f"  ratio {row['theirs'] / row['ours']:.2f}", flush=True)  # fmt: skip
    return row


def peak() -> float:
    """Return what one thread's multiply-adds reach at most, GFLOP/s."""
    import kernels

    return kernels.machine("float32")


def limit(name: str, size: int, rate: float, cores: int) -> float:
    """Return the ms that a training step's multiply-adds take at the peak rate of all cores; 0 where it has hardly any.

    Forward, and twice as much backward; that the first layer's inputs need no gradient is left aside.
    """
    found = run([sys.executable, "-m", "pe_cli.cli.main", "summary", f"configs/bench/{name}.yaml", "--json"])
    operations = sum(layer["flops"] for layer in found["layers"]) * size * (1 if name == "chain" else 3)
    return operations / (rate * 1e6 * cores) if operations > 1e6 else 0.0


def table(rows: list[dict]) -> str:
    """Return the table as Markdown."""
    head = "| workload | batch | pe, ms a step | pe on one device | PyTorch at its best | PyTorch / pe "
    head += "| of the peak | start: pe / PyTorch, s | peak MB: pe / PyTorch |"
    lines = [head, "|---|---|---|---|---|---|---|---|---|"]
    for r in rows:
        share = f"{r['limit'] / r['ours']:.0%}" if r["limit"] else "-"
        lines.append(
            f"| {r['name']} | {r['size']} | {r['ours']:.3f} | {r['one']:.3f} | {r['theirs']:.3f} ({r['best']}) | "
            f"**{r['theirs'] / r['ours']:.2f}** | {share} | "
            f"{r['start']:.2f} / {r['peer_start']:.2f} | {r['rss']:.0f} / {r['peer_rss']:.0f} |"
        )
    return "\n".join(lines)


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(workloads.NAMES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--compile", action="store_true", help="run PyTorch compiled, too; needs a C++ compiler")
    parser.add_argument("--write", action="store_true", help="put the table into docs/performance.md")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only.split(","):
            rows += [compare(name, size, args, Path(folder)) for size in workloads.BATCHES[name]]
    if args.write:
        rate, cores = peak(), len(os.sched_getaffinity(0))
        for row in rows:
            row["limit"] = limit(row["name"], row["size"], rate, cores)
        path = ROOT / "docs" / "performance.md"
        text = path.read_text(encoding="utf-8")
        before, rest = text.split(MARKS[0])
        after = rest.split(MARKS[1])[1]
        machine = f"{processor()}, {len(os.sched_getaffinity(0))} cores, {rows[0]['peer']}, Python {platform.python_version()}"
        machine += f", peak {rate:.0f} GFLOP/s a core"
        chart.draw(rows, ROOT / "docs" / "pictures" / "benchmarks.svg", machine)
        picture = "![Times of PyTorch over times of pe](pictures/benchmarks.svg)"
        made = f"{MARKS[0]}\n\n{machine}\n\n{picture}\n\n{table(rows)}\n\n{MARKS[1]}"
        path.write_text(f"{before}{made}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
