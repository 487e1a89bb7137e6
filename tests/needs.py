"""What some tests need beside the extra `test`: without it they are skipped, and a run says at its end how many and for want of what.

`make peers` installs what can be installed, and runs the tests that the run before it has skipped.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
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
    "s3fs": ("s3fs", "remote"),
    "moto": ("moto", ""),
    "tensorboard": ("TensorBoard", ""),
    "kubernetes_validate": ("kubernetes-validate", "peers"),
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
        self.module, self._name = module, name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):  # pytest and copy look for such
            raise AttributeError(name)
        return Absent(self.module, f"{self._name}.{name}")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        skip(*_wanted(self.module))

    def __neg__(self) -> Absent:  # of a number
        return self

    def __repr__(self) -> str:
        return self._name


def _torch() -> Any:
    return importlib.import_module("torch") if importlib.util.find_spec("torch") is not None else Absent("torch", "torch")


#: PyTorch, or what skips the test that calls something of it.
torch: Any = _torch()


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names that a function and those within it use."""
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from names_in(each)


def missing(item: pytest.Item) -> Absent | None:
    """Return what a test names or is given, and is not installed."""
    function = getattr(item, "function", None)
    if not hasattr(function, "__code__"):
        return None
    given = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = (function.__globals__.get(name) for name in names_in(function.__code__))
    return next((each for each in (*given, *named) if isinstance(each, Absent)), None)


def _function(name: str) -> str:
    """Return the name of a test without its parameters: what is installed may name those otherwise."""
    return name.partition("[")[0]


class SkippedForWant:
    """A plugin: counts what is skipped for want of something; with `--skipped-for-want` it runs only what the run before skipped so."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._only: frozenset[str] | None = None
        self._skipped: dict[str, str] = {}
        self._others: Counter[str] = Counter()
        if config.getoption(OPTION):
            found = config.cache.get(SKIPPED, None) if config.cache else None
            if not found:
                raise pytest.UsageError(f"{OPTION}: no run of the tests before this one has skipped any: run make test first")
            self._only = frozenset(map(_function, found))

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Leave out files of which no test is wanted."""
        if self._only is None or collection_path.is_dir():
            return None
        inside = collection_path.relative_to(config.rootpath).as_posix()
        return None if inside in {name.partition("::")[0] for name in self._only} else True

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Mark tests that name what is not installed, so that they do not begin; leave out those that are not wanted."""
        for item in items:
            if absent := missing(item):
                item.add_marker(pytest.mark.skip(reason(*_wanted(absent.module))))
        if self._only is None:
            return
        others = [item for item in items if _function(item.nodeid) not in self._only]
        if others:
            config.hook.pytest_deselected(items=others)
            items[:] = [item for item in items if _function(item.nodeid) in self._only]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test that was skipped for want of something."""
        if report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2].removeprefix("Skipped: ")
            if why.startswith(_REASON):
                self._skipped[report.nodeid] = why.removeprefix(_REASON)
            else:
                self._others[why] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep their names for a run with `--skipped-for-want`."""
        cache = getattr(self._config, "cache", None)  # none with -p no:cacheprovider
        if cache is not None and self._only is None and not hasattr(session.config, "workerinput"):
            cache.set(SKIPPED, sorted(self._skipped))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say how many tests were skipped for want of what, and why others were."""
        terminalreporter.section("skipped tests")
        for why, count in self._others.most_common():
            terminalreporter.write_line(f"{count:6,} skipped: {why}")
        wants = Counter(self._skipped.values())
        for want, count in wants.most_common():
            terminalreporter.write_line(f"{count:6,} skipped for want of {want}")
        if not wants:
            terminalreporter.write_line("no test was skipped for want of something")
