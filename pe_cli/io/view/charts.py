"""Chooses the charts of runs: one per metric, with all runs in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.io.history import Run, Series, value_at
from pe_cli.io.view.chart import COLOURS, Chart, Line
from pe_cli.io.view.run_list import names_of
from pe_cli.io.view.ticks import drawable

#: What begins the name of a metric that is the length of one parameter's gradient.
NORM = "gradient_norm/"
#: Metrics with a chart further down.
BESIDE = {"learning_rate": "learning rate", "gradient_norm": "length of the gradient"}


def charts_of(runs: Sequence[Run]) -> list[Chart]:
    """Return a chart for the loss, every other metric, the learning rate, the gradient's length and the speed."""
    names, called = metric_names(runs), names_of(runs)
    made = [metric_chart(runs, name) for name in names if name not in BESIDE]
    made += [metric_chart(runs, name, BESIDE[name]) for name in BESIDE if name in names]
    speed = tuple(
        Line(called[i], run.speed, i % COLOURS, run=i, of=called[i]) for i, run in enumerate(runs) if run.speed.steps
    )
    if speed:
        made.append(Chart("throughput", "samples a second", speed, "speed", from_zero=True))
    return made


def metric_names(runs: Sequence[Run]) -> list[str]:
    """Return the names of metrics without their split, the loss first; gradients of single parameters are left out."""
    losses = [str(loss) for run in runs if (loss := value_at(run.config, "train", "loss"))]
    names = dict.fromkeys(losses)
    names |= dict.fromkeys(full.partition("/")[2] for run in runs for full in run.series)
    there = {full.partition("/")[2] for run in runs for full in run.series}
    return [name for name in names if name in there and not name.startswith(NORM)]


def metric_chart(runs: Sequence[Run], name: str, title: str = "", splits: Sequence[str] = ()) -> Chart:
    """Return the chart of a metric.

    Args:
        runs: all of them in one chart; one run has a colour per split, several have one colour each.
        name: `loss`, without its split.
        title: of the chart; the name where it is empty.
        splits: `train`, `eval`; all that there are where empty.
    """
    lines, called = [], names_of(runs)
    for i, run in enumerate(runs):
        for full, series in run.series.items():
            split, _, metric = full.partition("/")
            if metric != name or (splits and split not in splits):
                continue
            evaluates = split == "eval"
            colour = i if len(runs) > 1 else int(evaluates)
            label = f"{called[i]} {split}" if len(runs) > 1 else split
            lines.append(Line(label, series, colour % COLOURS, evaluates, i, called[i]))
    lines.sort(key=lambda line: (line.run, line.dashed))
    return Chart(title or name, title or name, tuple(lines), re.sub(r"[^\w]+", "-", f"m-{name}", flags=re.ASCII))


def chosen_chart(runs: Sequence[Run], metric: str | None) -> Chart:
    """Return the chart that a name asks for: `loss`, or `eval/loss` for one split; the first run's loss when None.

    Raises:
        PeError: there is no such metric.
    """
    names = metric_names(runs)
    if metric is None:
        if not names:
            raise PeError("nothing was recorded yet in these runs", hint="pe runs shows how far they are")
        return metric_chart(runs, names[0])
    full = {name for run in runs for name in run.series}
    if metric in full:
        split, _, name = metric.partition("/")
        return metric_chart(runs, name, metric, [split])
    if metric in names:
        return metric_chart(runs, metric)
    known = [*names, *sorted(full)]
    raise PeError(
        f"there is no metric '{metric}' in these runs",
        hint=did_you_mean(metric, known) or f"one of {', '.join(names) or 'none'}",
    )


def norms_of(run: Run) -> dict[str, Series]:
    """Return the lengths of the gradients of single parameters."""
    start = f"train/{NORM}"
    found = {n.removeprefix(start): s for n, s in run.series.items() if n.startswith(start)}
    return {n: s for n, s in found.items() if any(drawable(v) and v > 0 for v in s.values)}
