"""The chart of docs/performance.md: how many times faster than PyTorch a step is, and how fast the processor could be at most."""

from __future__ import annotations

from pathlib import Path


def draw(rows: list[dict], path: Path, title: str) -> None:
    """Write the chart of run.py's rows as SVG.

    Args:
        rows: each with name, size, ours and theirs (ms a step), and limit (ms that the multiply-adds alone take at the peak rate).
        path: of the file.
        title: machine and versions.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "pe", "font.family": "sans-serif", "font.size": 9})
    from matplotlib import pyplot

    shown = [r for r in rows if r["theirs"] / r["ours"] < 20][::-1]  # the chain, where PyTorch is dispatch alone, has no scale with others
    names = [f"{r['name']} {r['size']}" for r in shown]
    ratios = [r["theirs"] / r["ours"] for r in shown]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.34 * len(shown) + 1.3), layout="constrained")
    bars = axes.barh(names, ratios, color="#3b6fb6", height=0.62)
    axes.bar_label(bars, [f"{r:.2f}" for r in ratios], padding=3)
    limits = [r["theirs"] / r["limit"] if r["limit"] else None for r in shown]
    for place, limit in enumerate(limits):
        if limit is not None:
            axes.plot([limit, limit], [place - 0.4, place + 0.4], color="#b5541c", linewidth=2, label="_")
    axes.plot([], [], color="#b5541c", linewidth=2, label="multiply-adds alone, at the processor's peak")
    axes.axvline(1.0, color="#777777", linewidth=1, linestyle="--", label="PyTorch at its best")
    axes.set_xlim(0, max([*ratios, *(v for v in limits if v is not None)]) * 1.08)
    axes.set_xlabel("PyTorch's time / pe's time, a training step (more is better)")
    axes.set_title(title, fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, format="svg", metadata={"Date": None})
