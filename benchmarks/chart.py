"""The chart of docs/performance.md: how many times faster than the fastest peer a step is, and how fast the processor could be."""

from __future__ import annotations

from pathlib import Path


def draw(rows: list[dict], path: Path, title: str) -> None:
    """Write the chart of run.py's rows as SVG: one bar per workload.

    Args:
        rows: each with name, size, ours and theirs (ms a step), best (the fastest peer), operations (0: nothing to compute that
            would limit it), and limit (ms that the machine takes at least).
        path: of the file.
        title: machine and versions.
    """
    import textwrap

    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "pe", "font.family": "sans-serif", "font.size": 9, "svg.fonttype": "none"})
    from matplotlib import pyplot

    shown = rows[::-1]
    names = [f"{r['name']} {r['size']}" for r in shown]
    ratios = [r["theirs"] / r["ours"] for r in shown]
    limits = [r["theirs"] / r["limit"] if r["operations"] else None for r in shown]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.34 * len(shown) + 1.6), layout="constrained")
    # one far ahead, as where a peer's time is dispatch alone, would leave no scale to the others
    end = min(max([*ratios, *(v for v in limits if v is not None)]), 8.0) * 1.08
    axes.barh(names, ratios, color="#3b6fb6", height=0.62)
    for place, (row, ratio, limit) in enumerate(zip(shown, ratios, limits, strict=True)):
        if limit is not None and limit < end:
            axes.plot([limit, limit], [place - 0.4, place + 0.4], color="#b5541c", linewidth=2)
        # right of all bars, where no line crosses it
        label = f"{ratio:.2f}  {row['best'].partition(',')[0]}"
        axes.text(1.01, place, label, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
    axes.plot([], [], color="#b5541c", linewidth=2, label="the machine's limit: multiply-adds at their peak, or memory")
    axes.axvline(1.0, color="#777777", linewidth=1, linestyle="--", label="the fastest peer, named on the right")
    axes.set_xlim(0, end)
    axes.set_xlabel("time of the fastest peer / time of pe, a training step (more is better)")
    axes.set_title(textwrap.fill(title, 100), fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
