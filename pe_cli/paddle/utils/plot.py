"""utils.plot: curves of costs, which the scripts of the book draw while they train."""

from __future__ import annotations

import os
from typing import Any

from pe_cli.paddle.errors import FluidValueError


class PlotData:
    """Points of one curve: steps and values."""

    def __init__(self) -> None:
        self.step: list[Any] = []
        self.value: list[Any] = []

    def append(self, step: Any, value: Any) -> None:
        """Add a point."""
        self.step.append(step)
        self.value.append(value)

    def reset(self) -> None:
        """Forget the points."""
        self.step, self.value = [], []


class Ploter:
    """Curves by their titles; nothing is drawn without matplotlib, or with DISABLE_PLOT=True in the environment.

    Args:
        args: titles.
    """

    def __init__(self, *args: str) -> None:
        self.titles = args
        self.curves = {title: PlotData() for title in args}
        self._draws = os.environ.get("DISABLE_PLOT") != "True" and _has_matplotlib()

    def append(self, title: str, step: Any, value: Any) -> None:
        """Add a point to a curve.

        Raises:
            FluidValueError: there is no curve of that title; a ValueError.
        """
        if title not in self.curves:
            raise FluidValueError(f"there is no curve '{title}'", hint=f"one of {', '.join(self.titles)}")
        self.curves[title].append(step, value)

    def plot(self, path: str | None = None) -> None:
        """Draw all curves that have points, to a file where a path is given."""
        if not self._draws:
            return
        from matplotlib import pyplot

        shown = [title for title in self.titles if self.curves[title].step]
        for title in shown:
            pyplot.plot(self.curves[title].step, self.curves[title].value)
        pyplot.legend(shown, loc="upper left")
        if path is not None:
            pyplot.savefig(path)
        pyplot.gcf().clear()

    def reset(self) -> None:
        """Forget the points of all curves."""
        for curve in self.curves.values():
            curve.reset()


def _has_matplotlib() -> bool:
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


__all__ = ["PlotData", "Ploter"]
