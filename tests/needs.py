"""What some tests need beside the extra `test`: without it they are skipped, and a run says at its end how many and for want of what.

`make peers` installs what can be installed, and runs the tests that the run before it has skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import pytest

#: Where a run keeps the tests that it has skipped for want of something, in pytest's cache.
SKIPPED = "pe/skipped-for-want"
OPTION = "--skipped-for-want"
_REASON = "needs "
#: Packages of other extras that tests compare with: name of the module, of the package, and of the extra that brings it.
_PACKAGES = {
    "torch": ("PyTorch", "dev"),
    "optuna": ("optuna", "search"),
    "matplotlib": ("matplotlib", "plot"),
    "tensorboardX": ("tensorboardX", "tensorboard"),
    "tensorboard": ("TensorBoard", ""),
}


def reason(what: str, remedy: str = "") -> str:
    """Return the reason of a skipped test for want of something: its name up to the first colon, then how to get it."""
    return f"{_REASON}{what}: {remedy}" if remedy else f"{_REASON}{what}"


def skip(what: str, remedy: str = "") -> NoReturn:
    """Skip the test that is running for want of something."""
    pytest.skip(reason(what, remedy), allow_module_level=True)


def needs(there: bool, what: str, remedy: str = "") -> pytest.MarkDecorator:
    """Mark a test that is skipped where something is not there."""
    return pytest.mark.skipif(not there, reason=reason(what, remedy))


def _wanted(module: str) -> tuple[str, str]:
    name, extra = _PACKAGES[module.partition(".")[0]]
    return name, f"pip install '.[{extra}]'" if extra else f"pip install {name.lower()}"


def package(module: str) -> Any:
    """Import a module of `_PACKAGES`, or skip the test."""
    what, remedy = _wanted(module)
    return pytest.importorskip(module, reason=reason(what, remedy), exc_type=ImportError)


def needs_package(module: str) -> pytest.MarkDecorator:
    """Mark a test that is skipped where a package of `_PACKAGES` is not installed."""
    return needs(importlib.util.find_spec(module) is not None, *_wanted(module))


class Absent:
    """Stands for a module that is not installed, and for all that is in it: whoever calls that is skipped.

    So a test module can name functions to compare with as parameters of its tests, and all its tests are collected anyway.
    """

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):  # pytest and copy look for such
            raise AttributeError(name)
        return Absent(self._module, f"{self._name}.{name}")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        skip(*_wanted(self._module))

    def __neg__(self) -> Absent:  # of a number
        return self

    def __repr__(self) -> str:
        return self._name


def _torch() -> Any:
    return importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else Absent("torch", "torch")


#: PyTorch, or what skips the test that calls something of it.
torch: Any = _torch()


class SkippedForWant:
    """A plugin: counts what is skipped for want of something; with `--skipped-for-want` it runs only what the run before skipped so."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._only: frozenset[str] | None = None
        self._skipped: dict[str, str] = {}
        if config.getoption(OPTION):
            found = config.cache.get(SKIPPED, None)  # type: ignore[union-attr]
            if not found:
                raise pytest.UsageError(f"{OPTION}: no run of the tests before this one has skipped any: run make test first")
            self._only = frozenset(found)

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out files of which no test is wanted."""
        if self._only is None or collection_path.is_dir():
            return None
        inside = collection_path.relative_to(config.rootpath).as_posix()
        return None if inside in {name.partition("::")[0] for name in self._only} else True

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests that are not wanted."""
        if self._only is None:
            return
        others = [item for item in items if item.nodeid not in self._only]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if item.nodeid in self._only]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that was skipped for want of something."""
        if report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2].removeprefix("Skipped: ")
            if why.startswith(_REASON):
                self._skipped[report.nodeid] = why.removeprefix(_REASON).partition(":")[0]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep their names for a run with `--skipped-for-want`."""
        if self._only is None and not hasattr(session.config, "workerinput"):
            self._config.cache.set(SKIPPED, sorted(self._skipped))  # type: ignore[union-attr]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests were skipped for want of what."""
        terminalreporter.section("skipped for want of something")
        terminalreporter.write_line(told(self._skipped.values()))


def told(wants: Collection[str]) -> str:
    """Return a line with the number of tests for each thing that they wanted."""
    if not wants:
        return "no test: all that tests can use is here"
    return "; ".join(f"{sum(each == want for each in wants)} for {want}" for want in _ordered(wants))


def _ordered(wants: Iterable[str]) -> list[str]:
    return sorted(set(wants))
