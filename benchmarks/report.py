"""What run.py and growth.py keep and write: rows in build/, tables and chart in docs/."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import chart
import workloads

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
MARKS = ("<!-- table: made by benchmarks/run.py -->", "<!-- end of table -->")
KEPT = ROOT / "build" / "benchmarks.json"
HEAD = (
    "workload",
    "batch",
    "pe, ms a step",
    "pe on one device",
    "fastest peer",
    "its ms a step",
    "peer / pe, medians",
    "peer / pe, quiet",
    "of the peak, medians / quiet",
    "of the limit, medians / quiet",
    "start: pe / peers, s",
    "peak MB: pe / peers",
)


class State:
    """Rows as they come, and what they were measured on.

    Args:
        about: machine, versions and lengths; rows of another one are not mixed with these.
        wanted: number of rows there will be.
    """

    def __init__(self, about: dict, wanted: int) -> None:
        self.about, self.wanted = about, wanted
        self.rows: list[dict] = []

    def resume(self) -> None:
        """Take over the rows of a run that was ended."""
        if not KEPT.exists():
            return
        kept = json.loads(KEPT.read_text(encoding="utf-8"))
        if kept["about"] != self.about:
            differ = [k for k in self.about if kept["about"].get(k) != self.about[k]]
            sys.exit(f"{KEPT} differs in {', '.join(differ)}; hint: leave out --resume, or ask for the same as then")
        self.rows = kept["rows"]
        self.wanted = max(self.wanted, len(self.rows))

    def has(self, name: str, size: int) -> bool:
        return any((r["name"], r["size"]) == (name, size) for r in self.rows)

    def add(self, row: dict) -> None:
        """Keep a row, at once and whole: a run may be killed at any time."""
        self.rows.append(row)
        KEPT.parent.mkdir(exist_ok=True)
        part = KEPT.with_suffix(".part")
        part.write_text(json.dumps({"about": self.about, "rows": self.rows}, indent=1), encoding="utf-8")
        part.replace(KEPT)

    def machine(self) -> str:
        """Return machine and versions in a line."""
        about = self.about
        versions = [f"{name} {version}" for name, version in named(about["peers"])]
        peak, stream = (max(r[k] for r in self.rows) for k in ("peak", "stream"))
        rate = f"peak {peak:.0f} GFLOP/s a core, triad {stream:.0f} GB/s on all"
        return ", ".join([about["processor"], f"{about['cores']} cores", f"Python {about['python']}", *versions, rate])

    def write(self) -> None:
        """Write the rows so far into the page, and draw them."""
        if not self.rows:
            return
        rate = max(r["peak"] for r in self.rows) * 1e6 * self.about["cores"]  # operations a millisecond
        stream = max(r["stream"] for r in self.rows) * 1e6  # bytes a millisecond
        order = [(name, size) for name in workloads.NAMES for size in workloads.BATCHES[name]]
        ordered = sorted(self.rows, key=lambda r: order.index((r["name"], r["size"])))
        rows = [r | {"computing": r["operations"] / rate, "limit": limit(r["needs"], rate, stream)} for r in ordered]
        chart.draw(rows, ROOT / "docs" / "pictures" / "benchmarks.svg", self.machine())
        parts = [self.machine(), "![Times of the fastest peer over times of pe](pictures/benchmarks.svg)", table(rows)]
        parts += notes(rows, self.about, self.wanted)
        replace(PAGE, MARKS, "\n\n".join(parts))


def limit(needs: list[tuple[float, float]], rate: float, stream: float) -> float:
    """Return the least ms of a step: every op's operations or its bytes, whichever take longer; bytes that a cache may hold take none.

    Args:
        needs: operations and bytes of every op.
        rate: operations a millisecond, of all cores.
        stream: bytes a millisecond, of all cores.
    """
    cache = last_cache()
    return sum(max(count / rate, size / stream if size > cache else 0.0) for count, size in needs)


def last_cache() -> int:
    """Return the bytes of the largest cache; 32 MiB where the system does not tell."""
    sizes = [p.read_text().strip() for p in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(s.rstrip("K")) << 10 for s in sizes), default=32 << 20)


def share(part: float, row: dict) -> str:
    """Return how much of the median and of the fastest step a time is."""
    return f"{part / row['ours']:.0%} / {part / row['ours_quiet']:.0%}" if row["operations"] else "-"


def named(versions: dict[str, str]) -> list[tuple[str, str]]:
    """Return names and versions of peers; a name that ends in the major version is cut: "PaddlePaddle 3" is of 3.3.1."""
    return [(name.rstrip("0123456789. "), version) for name, version in versions.items()]


def notes(rows: list[dict], about: dict, wanted: int) -> list[str]:
    """Return sentences on what the table does not show."""
    lines = []
    if about["absent"]:
        lines.append(f"Not installed, so not compared: {', '.join(about['absent'])}.")
    out = [f"{r['name']} {r['size']} with {label}" for r in rows for label in r["left_out"]]
    if out:
        lines.append(f"Left out, because it failed or its losses differ: {'; '.join(out)}.")
    if len(rows) < wanted:
        lines.append(f"{len(rows)} of {wanted} rows: the others were not measured.")
    return lines


def table(rows: list[dict]) -> str:
    """Return the table as Markdown."""
    cells = []
    for r in rows:
        cells.append([
            r["name"], str(r["size"]), f"{r['ours']:.3f}", f"{r['one']:.3f}", r["best"], f"{r['theirs']:.3f}",
            f"**{r['theirs'] / r['ours']:.2f}**", f"{r['theirs_quiet'] / r['ours_quiet']:.2f}",
            share(r["computing"], r), share(r["limit"], r),
            f"{r['start']:.2f} / {r['peer_start']:.2f}", f"{r['rss']:.0f} / {r['peer_rss']:.0f}",
        ])  # fmt: skip
    return markdown(HEAD, cells)


def markdown(head: tuple[str, ...], rows: list[list[str]]) -> str:
    """Return a table of Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("| --- ", "|---").replace("---|", "---|")


def replace(page: Path, marks: tuple[str, str], body: str) -> None:
    """Put text between two marks of a page."""
    before, rest = page.read_text(encoding="utf-8").split(marks[0])
    after = rest.split(marks[1])[1]
    page.write_text(f"{before}{marks[0]}\n\n{body}\n\n{marks[1]}{after}", encoding="utf-8")


def processor() -> str:
    """Return the processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
