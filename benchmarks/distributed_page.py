"""Tables of what was measured over processes, the fit and its check, predictions, and the picture of docs/scaling.md."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import distributed_model as model
import report

PAGE = report.ROOT / "docs" / "scaling.md"
PICTURE = report.ROOT / "docs" / "pictures" / "scaling.svg"
MARKS = {
    name: (f"<!-- {name}: made by benchmarks/distributed.py -->", f"<!-- end of {name} -->")
    for name in ("machine", "bytes", "steps", "overlap", "fit", "predictions")
}
#: What is predicted: parameters, seconds that a process computes in a step, networks in Gbit/s, and numbers of processes.
CASES = {"25 M parameters": (25e6, 0.5), "1 B parameters": (1e9, 10.0)}
NETWORKS = (1.0, 10.0, 100.0)
RANKS = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
#: Bytes of larger buckets, that a prediction is made for, too.
LARGER = 64 << 20


def judge(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fit, what it says of what was measured, and its predictions."""
    held, fitted = str(found["about"]["held_out"]), []
    for size, sums in found["sums"].items():
        for nbytes, each in sums.items():
            if size != held:
                fitted.append({"size": int(size), "bytes": int(nbytes), "seconds": statistics.median(each["seconds"])})
    costs = model.fit(fitted, found["handling"])
    nbytes = found["gradients"]
    compute, count = found["steps"]["1"]["cpu"], found["steps"]["2"]["buckets"]
    rows = []
    for size in found["sums"]:
        for each, got in found["sums"][size].items():
            rows.append((f"sum of {int(each) >> 10:,} KiB", int(size), statistics.median(got["seconds"]), costs.sum(int(each), int(size))))
        step = statistics.median(found["steps"][size]["seconds"])
        rows.append(("step", int(size), step, costs.step(nbytes, int(size), compute, count)))
    checks = [{"what": w, "size": n, "measured": m, "model": p, "held_out": str(n) == held} for w, n, m, p in rows]
    predictions = {}
    for name, (parameters, seconds) in CASES.items():
        for gbit in NETWORKS:
            network = model.Costs(costs.latency, gbit * 1e9 / 8, costs.handling)
            predictions[f"{name}, {gbit:g} Gbit/s"] = model.predicted(network, parameters, seconds, RANKS)
        fast = model.Costs(costs.latency, NETWORKS[-1] * 1e9 / 8, costs.handling)
        predictions[f"{name}, {NETWORKS[-1]:g} Gbit/s, buckets of 64 MiB"] = model.predicted(fast, parameters, seconds, RANKS, LARGER)
    fit = {"latency": costs.latency, "bandwidth": costs.bandwidth, "handling": costs.handling, "compute": compute, "buckets": count}
    return {"fit": fit, "checks": checks, "predictions": predictions}


def tables(found: dict[str, Any], judged: dict[str, Any]) -> dict[str, str]:
    """Return the tables of the page by name, as Markdown."""
    return {
        "machine": _machine(found["about"]), "bytes": _bytes(found), "steps": _steps(found), "overlap": overlap(found),
        "fit": _fit(found, judged), "predictions": _predictions(judged),
    }  # fmt: skip


def _machine(about: dict[str, Any]) -> str:
    return (
        f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f} when it began; Python {about['python']},"
        f" NumPy {about['numpy']}, mpi4py {about['mpi4py']} with {about['library']}, PyTorch {about['torch']};"
        f" {about['repeats']} steps or sums each."
    )


def _bytes(found: dict[str, Any]) -> str:
    nbytes = found["gradients"]
    rows = []
    for size, each in found["steps"].items():
        least = 2 * nbytes * (int(size) - 1) / int(size)
        if not least:
            continue
        ddp = found["ddp"][size]
        rows.append([
            size, f"{least / 1e6:.2f}", f"{each['bytes'] / 1e6:.2f}", f"{each['bytes'] / least:.3f}", f"{each['messages']:.0f}",
            f"{each['packets']:.0f}", f"{ddp['bytes'] / 1e6:.2f}", f"{ddp['bytes'] / least:.3f}",
        ])  # fmt: skip
    head = ("processes", "2 S (N - 1) / N, MB", "pe, MB", "ratio", "messages", "packets", "DDP, MB", "ratio")
    return report.markdown(head, rows)


def _steps(found: dict[str, Any]) -> str:
    rows = []
    for size, each in found["steps"].items():
        ddp = found["ddp"][size]
        mine, other = (statistics.median(f["seconds"]) for f in (each, ddp))
        quiet, other_quiet = min(each["seconds"]), min(ddp["seconds"])
        row = [size, f"{mine * 1e3:.0f}", f"{quiet * 1e3:.0f}", f"{other * 1e3:.0f}", f"{other_quiet * 1e3:.0f}", f"{other / mine:.2f}"]
        rows.append(row)
    return report.markdown(("processes", "pe, ms a step", "its fastest", "DDP, ms a step", "its fastest", "DDP / pe"), rows)


def overlap(found: dict[str, Any]) -> str:
    """Return the table of steps, whose sums hide behind computing."""
    rows = []
    for each in found["overlap"]:
        for key in [k for k in each if f"{k.partition(' ')[0]} alone" in each and not k.endswith("alone")]:
            of, _, bucket = key.partition(" ")
            compute, step = (statistics.median(each[k]["seconds"]) for k in (f"{of} alone", key))
            least = model.overlapped(compute, each["sums"], each["pe"]["buckets"])
            row = [f"{each['rate']:g}", f"DDP, buckets of {bucket} MB" if bucket else f"pe, {each['pe']['buckets']} buckets"]
            row += [f"{seconds * 1e3:.0f}" for seconds in (compute, each["sums"], step, min(each[key]["seconds"]))]
            row += [f"{seconds / max(compute, each['sums']):.2f}" for seconds in (step, compute + each["sums"])]
            rows.append([*row, "" if bucket else f"{least / max(compute, each['sums']):.2f}"])
    head = ("Mbit/s", "", "computing, ms", "sums alone, ms", "step, ms", "fastest", "step / longer one", "one after the other", "model")
    return report.markdown(head, rows)


def _fit(found: dict[str, Any], judged: dict[str, Any]) -> str:
    fit = judged["fit"]
    line = (
        f"latency {fit['latency'] * 1e3:.3f} ms a message, bandwidth {fit['bandwidth'] * 8e-6:.1f} Mbit/s"
        f" (the limit is {found['rate']:g}), handling {fit['handling'] * 1e9:.2f} ns a byte, computing {fit['compute'] * 1e3:.1f} ms a step"
    )
    rows = []
    for c in judged["checks"]:
        off = c["model"] / c["measured"] - 1
        use = "checked" if c["held_out"] else "fitted" if c["what"] != "step" else "follows"
        rows.append([c["what"], str(c["size"]), f"{c['measured'] * 1e3:.1f}", f"{c['model'] * 1e3:.1f}", f"{off:+.0%}", use])
    return f"{line}\n\n" + report.markdown(("what", "processes", "measured, ms", "model, ms", "off by", "use"), rows)


def _predictions(judged: dict[str, Any]) -> str:
    shown = (2, 8, 64, 256, 1024)
    rows = []
    for name, each in judged["predictions"].items():
        by = {p["size"]: p for p in each}
        rows.append([name, *(f"{by[n]['step']:.2f} s, {by[n]['efficiency']:.0%}" for n in shown)])
    return report.markdown(("", *(f"{n} processes" for n in shown)), rows)


def text(found: dict[str, Any], judged: dict[str, Any]) -> str:
    """Return all tables, for a terminal."""
    return "\n\n".join(f"{name}\n\n{body}" for name, body in tables(found, judged).items())


def write(found: dict[str, Any], judged: dict[str, Any], page: Path = PAGE, picture: Path = PICTURE) -> None:
    """Write the tables into the page, and the picture."""
    for name, body in tables(found, judged).items():
        report.replace(page, MARKS[name], body)
    draw(judged, picture)


def draw(judged: dict[str, Any], path: Path) -> None:
    """Draw how much of a step is computing, over the number of processes, for each model and network."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "pe", "font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(CASES), figsize=(8.4, 3.4), layout="constrained", sharey=True)
    colours = ("#b5541c", "#3b6fb6", "#3f8f4f", "#3f8f4f")
    for axes, (name, (_, seconds)) in zip(panels, CASES.items(), strict=True):
        mine = {key: each for key, each in judged["predictions"].items() if key.startswith(name)}
        for (key, each), colour in zip(mine.items(), colours, strict=True):
            label = key.partition(", ")[2]
            dashed = "--" if "buckets" in label else "-"
            axes.plot([p["size"] for p in each], [100 * p["efficiency"] for p in each], dashed, color=colour, label=label, marker="o", ms=3)
        axes.set_xscale("log", base=2)
        axes.set_xticks(RANKS, [str(n) for n in RANKS], fontsize=7)
        axes.set_title(f"{name}, {seconds:g} s of computing in a step", fontsize=9)
        axes.set_xlabel("processes")
        axes.set_ylim(0, 102)
        axes.grid(color="#dddddd", linewidth=0.5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_ylabel("computing, % of a step")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
