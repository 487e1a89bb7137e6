"""Packages of others that a run file names: what they register is found by its name like our own. Nothing is loaded that no file names."""

from __future__ import annotations

import traceback
from importlib import metadata
from pathlib import Path

from pe_cli.core.errors import PeError, Span, did_you_mean, shown

#: Kinds of things that a package may have, each an entry point group: `pe_cli.readers` and so on.
KINDS = ("readers", "metrics", "layers", "observers")
_GROUPS = tuple(f"pe_cli.{kind}" for kind in KINDS)
_LOADED: set[str] = set()


def load_plugin(package: str, at: Span | None) -> None:
    """Import what a package registers; once in a process.

    Args:
        package: name of the distribution, as `pip install` takes it.
        at: place of the name.

    Raises:
        PeError: USAGE; it is not installed, has nothing for us, or fails while it is imported.
    """
    try:
        found = metadata.distribution(package)
    except (metadata.PackageNotFoundError, ValueError):
        hint = did_you_mean(package, _offering()) or f"pip install {shown(package)}"
        raise PeError(f"plugins: the package '{shown(package)}' is not installed", at=at, hint=hint) from None
    points = [point for point in found.entry_points if point.group in _GROUPS]
    if not points:
        hint = f"a package declares what it has under {', '.join(_GROUPS[:-1])} or {_GROUPS[-1]}"
        raise PeError(f"plugins: the package '{package}' has no entry point for pe", at=at, hint=hint)
    for point in points:
        if f"{package}:{point.group}:{point.name}" in _LOADED:
            continue
        what = f"plugins: {package}: {point.group} {point.name} = {point.value}"
        try:
            point.load()
        except PeError as error:
            raise PeError(f"{what}: {error.message}", at=at, hint=error.hint) from None
        except Exception as error:  # noqa: BLE001 - the code of others may raise anything
            hint = f"{_where(error)}; mend the package, or leave it out of plugins"
            raise PeError(f"{what} cannot be loaded: {type(error).__name__}: {error}", at=at, hint=hint) from None
        _LOADED.add(f"{package}:{point.group}:{point.name}")


def is_foreign(module: str) -> bool:
    """Return whether a module is none of ours, so that what it registers must not take a name of ours."""
    return module.partition(".")[0] != __name__.partition(".")[0]


def offered(kind: str, name: str) -> str | None:
    """Return what to do where nothing of ours has a name and an installed package that is not loaded does; None where none does.

    Args:
        kind: of `KINDS`.
        name: of the entry point.
    """
    for point in metadata.entry_points(group=f"pe_cli.{kind}", name=name):
        if point.dist is not None:
            return f"the installed package '{point.dist.name}' has it: add plugins: [{point.dist.name}] to the config"
    return None


def _offering() -> list[str]:
    """Return the installed packages that have something for us."""
    points = [point for group in _GROUPS for point in metadata.entry_points(group=group)]
    return sorted({point.dist.name for point in points if point.dist is not None})


def _where(error: BaseException) -> str:
    """Return file and line of the last call, as it is theirs."""
    calls = traceback.extract_tb(error.__traceback__)
    last = calls[-1] if calls else None
    return f"raised in {Path(last.filename).name} line {last.lineno}" if last else "raised while it was imported"
