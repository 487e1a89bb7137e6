"""What an observer of another program is, and the registry of kinds: those in `kinds/`, and those of packages that a run file names."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import MapNode, find, key_span
from pe_cli.config.plugins import is_foreign, offered
from pe_cli.config.section_check import check
from pe_cli.config.sections.section import Section
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.session.observer import Observer


@dataclass(frozen=True)
class About:
    """What an observer may know of a run before it begins.

    Args:
        name: of the run's folder.
        folder: its path.
        config: resolved, as JSON values.
        tags: as `output.tags`.
        note: as `output.note`; empty for none.
    """

    name: str
    folder: str
    config: Mapping[str, Any]
    tags: Sequence[str] = ()
    note: str = ""

    def flat(self) -> dict[str, Any]:
        """Return the config as key -> value with dots between the parts of a key."""
        return dict(_flat("", self.config))


def _flat(above: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        return [(above, value)]
    return [pair for key, inner in value.items() for pair in _flat(f"{above}.{key}" if above else str(key), inner)]


@dataclass(frozen=True)
class Kind:
    """An observer that a run file can name.

    Args:
        name: key of `output.observers`.
        options: model of its options.
        make: returns it, in a process of its own; imports the other program's package there.
        needs: package that it imports, so that a run file asks for nothing that is not there; empty for none.
        install: what `pip install` takes for that.
    """

    name: str
    options: type[Section]
    make: Callable[[Any, About], Observer]
    needs: str = ""
    install: str = ""


KINDS: dict[str, Kind] = {}
AnyMake = TypeVar("AnyMake", bound=Callable[..., Observer])


def observer(name: str, options: type[Section], *, needs: str = "", install: str = "") -> Callable[[AnyMake], AnyMake]:
    """Register a class or function as the observer of a name; arguments as for `Kind`.

    What is registered is called with checked options and an `About`, and is told of the run by the methods `started`, `recorded` and
    `ended` of `Observer`.

    Raises:
        PeError: USAGE; a package of others takes a name that there is.
    """

    def register(make: AnyMake) -> AnyMake:
        known = discover().get(name) if is_foreign(make.__module__) else KINDS.get(name)
        if known is not None and known.make.__module__ != make.__module__:
            raise PeError(f"there is an observer '{name}' already", hint="give the observer another name")
        KINDS[name] = Kind(name, options, make, needs, install)
        return make

    return register


@functools.cache
def _import_all() -> None:
    package = importlib.import_module("pe_cli.session.observers.kinds")
    for info in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{info.name}")


def discover() -> dict[str, Kind]:
    """Return all observers by name, with those of packages that are loaded."""
    _import_all()
    return dict(sorted(KINDS.items()))


def asked_for(run: RunSpec, mistakes: Mistakes) -> dict[str, Section]:
    """Return the observers that a run file asks for, with their options, checked; those with mistakes are left out.

    Args:
        run: checked.
        mistakes: where errors go: an unknown name, a wrong option, or a package that is not installed.
    """
    found: dict[str, Section] = {}
    for name, written in run.output.observers.items():
        path = ("output", "observers", name)
        at, kinds = key_span(run.tree, path), discover()
        kind = kinds.get(name)
        if kind is None:
            hint = offered("observers", name) or did_you_mean(name, kinds) or f"one of {', '.join(kinds)}"
            mistakes.say(f"there is no observer '{name}'", at, hint)
            continue
        node = find(run.tree, path)
        options = check(kind.options, node if written and node is not None else MapNode({}, at), path, mistakes, at)
        if kind.needs and importlib.util.find_spec(kind.needs) is None:
            hint = f"pip install {kind.install or kind.needs}, or leave it out; metrics.jsonl is written anyway"
            mistakes.say(f"output.observers: {name} needs the package {kind.needs}, which is not installed", at, hint)
        elif options is not None:
            found[name] = options
    return found
