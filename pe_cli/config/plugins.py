"""Plugins: packages that a run file names, whose entry points register layers, readers, metrics and observers. No other is imported."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from pe_cli.config.constants import fill
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.extends import compose
from pe_cli.config.nodes import ListNode, MapNode, ScalarNode, describe, is_null
from pe_cli.core.errors import PeError, Span, did_you_mean, shown

#: Kinds of things that a package may have, each an entry point group: `pe_cli.readers` and so on.
KINDS = ("readers", "metrics", "layers", "observers")
_GROUPS = tuple(f"pe_cli.{kind}" for kind in KINDS)
_LOADED: set[str] = set()


def load_declared(path: Path) -> None:
    """Load the packages that a run file names, whatever else is wrong with it.

    Args:
        path: of the run file.

    Raises:
        PeError: USAGE; it cannot be read, or a package not be loaded.
    """
    mistakes = Mistakes()
    found = compose(path, mistakes)
    if found is not None:
        named = {key: entry for key, entry in found.tree.entries.items() if key == "plugins"}
        filled = fill(MapNode(named, found.tree.at), found.names, mistakes)
        if filled is not None:
            load_plugins(filled, mistakes)
    mistakes.raise_all()


def load_plugins(tree: MapNode, mistakes: Mistakes) -> tuple[str, ...]:
    """Load the packages that a run file names, and return their names.

    Args:
        tree: of the run file.
        mistakes: where errors go.
    """
    entry = tree.entries.get("plugins")
    if entry is None or is_null(entry.value):
        return ()
    found = []
    is_list = isinstance(entry.value, ListNode)
    for item in entry.value.items if isinstance(entry.value, ListNode) else (entry.value,):
        if not is_list or not isinstance(item, ScalarNode) or not isinstance(item.value, str) or not item.value:
            mistakes.say(f"plugins must be a list of packages, got {describe(item)}", item.at, "for example [acme-pe]")
            continue
        with mistakes.catch():
            load_plugin(item.value, item.at)
            found.append(item.value)
    return tuple(found)


def load_plugin(package: str, at: Span | None) -> None:
    """Import what a package registers; once in a process.

    Args:
        package: name of the distribution, as `pip install` takes it.
        at: place of the name.

    Raises:
        PeError: USAGE; it is not installed, has nothing for us, or fails while it is imported.
    """
    # Only a package that the run file names is imported: what happens to be installed runs no code.
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
        # Importing twice would register the same names twice, which is a mistake elsewhere.
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
    package = offering(name, (kind,))
    return f"the installed package '{package}' has it: add plugins: [{package}] to the config" if package else None


def offering(name: str, kinds: Sequence[str] = KINDS) -> str | None:
    """Return the installed package that has something of a name and of one of these kinds; None where none has."""
    points = (point for kind in kinds for point in metadata.entry_points(group=f"pe_cli.{kind}", name=name))
    return next((point.dist.name for point in points if point.dist is not None), None)


def _offering() -> list[str]:
    """Return the installed packages that have something for us."""
    points = [point for group in _GROUPS for point in metadata.entry_points(group=group)]
    return sorted({point.dist.name for point in points if point.dist is not None})


def _where(error: BaseException) -> str:
    """Return file and line of the last call, as it is theirs."""
    calls = traceback.extract_tb(error.__traceback__)
    last = calls[-1] if calls else None
    return f"raised in {Path(last.filename).name} line {last.lineno}" if last else "raised while it was imported"
