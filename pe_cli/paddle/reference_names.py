"""The names of PaddlePaddle's reference: a missing one is an AttributeError that explains itself."""

from __future__ import annotations

import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import NoSuchName
from pe_cli.paddle.reference import Recorded, recorded
from pe_cli.paddle.refused_names import UNTAKEN, Refused, find


@functools.cache
def known() -> frozenset[str]:
    """Return every name of the original's reference."""
    text = (Path(__file__).parent / "reference_names.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text))


def missing(module: str, there: Callable[[], Iterable[str]]) -> Callable[[str], Any]:
    """Return a module's `__getattr__`: names that the original's module has, too, stand elsewhere here, or raise where they are used.

    Args:
        module: as users call it.
        there: the names that it has, for a hint.

    Raises:
        AttributeError: when called: the name is not there, with a hint where there is one.
    """
    path = module if module.split(".")[0] == "paddle" else f"paddle.{module}"

    def getattribute(name: str) -> Any:
        if not name.startswith(("_", "pytest")):  # Python and its tools ask for names of theirs that need not be there
            found = _elsewhere(path, name)
            if found is not None:
                return found
            refusal = find(module, name) or (UNTAKEN if name in recorded().get(path, _NOTHING).names else None)
            if refusal is not None:
                # Tools that walk over all names of a module must be able to hold a refused one; it raises when it is used.
                return Refused(f"{module}.{name}", refusal)
        if name in known():
            raise NoSuchName(f"{module}.{name} is a name of PaddlePaddle's reference that is not there yet")
        hint = None if name.startswith(("_", "pytest")) else did_you_mean(name, [n for n in there() if not n.startswith("_")])
        raise NoSuchName(f"{module} has no '{name}'", hint=hint)

    return getattribute


_NOTHING = Recorded()
#: Modules of the original whose names another one has here than the nearest above.
_SOURCES = {
    "paddle.fluid.dataloader": "paddle.io",
    "paddle.fluid.dataloader.batch_sampler": "paddle.io",
    "paddle.fluid.dataloader.dataset": "paddle.io",
    "paddle.fluid.layer_helper_base": "paddle.fluid.layer_helper",
    "paddle.fluid.core_avx": "paddle.fluid.core",
    "paddle.fluid.core_noavx": "paddle.fluid.core",
}


#: The module that had all layers of sequences and all losses, too, up to 1.6.
_ALL_LAYERS = "paddle.fluid.layers.nn"


def _elsewhere(path: str, name: str) -> Any:
    """Return what a module of the original has under a name, where another module has it here; None where none has."""
    of = recorded().get(path, _NOTHING)
    if name in of.modules:
        return _module(of.modules[name])
    if f"{path}.{name}" in recorded():
        return _module(f"{path}.{name}")  # a module that is imported when it is asked for
    if name in of.taken:
        return _taken(path, name, of.taken[name])
    if path in _SOURCES:
        source = _module(_SOURCES[path])
        return None if source is None else getattr(source, name, None)
    if name not in of.own and not (path == _ALL_LAYERS and name in recorded()["paddle.fluid.layers"].names):
        return None
    # A name that the original has in a module of its own stands here in the nearest package above.
    return _first_of(_above(path), name)


def _taken(path: str, name: str, source: str) -> Any:
    """Return what a module takes from another one."""
    value = getattr(_module(source), name, None)
    if value is not None and not isinstance(value, Refused):
        return value
    # What the original generates belongs to the generator in all modules, and stands here in the package above.
    return _first_of((p for p in _above(path) if recorded().get(p, _NOTHING).taken.get(name) == source), name)


def _above(path: str) -> Iterable[str]:
    """Return the packages that a module is in, the nearest first."""
    parts = path.split(".")[:-1]
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _first_of(paths: Iterable[str], name: str) -> Any:
    """Return what the first of some modules has under a name; None where none has."""
    values = (vars(m).get(name) for m in map(_module, paths) if m is not None)
    return next((v for v in values if v is not None and not isinstance(v, (Refused, ModuleType))), None)


def _module(path: str) -> ModuleType | None:
    """Return a module by the original's name."""
    full = f"pe_cli.{path}"
    if full in sys.modules:
        return sys.modules[full]
    try:
        return importlib.import_module(full)
    except ModuleNotFoundError:
        return None


#: Modules of earlier and later versions whose names are all refused.
_OF_OTHER_VERSIONS = (
    "paddle.fluid.imperative", "paddle.amp", "paddle.inference", "paddle.jit", "paddle.onnx",
)  # fmt: skip


def install() -> None:
    """Make the modules of the original that have no file here, so that their paths can be imported; give the others their further names."""
    for path in (*recorded(), *_OF_OTHER_VERSIONS):
        full = f"pe_cli.{path}"
        if full in sys.modules:
            module = sys.modules[full]
            if "__getattr__" not in vars(module):
                module.__getattr__ = missing(_said(path), functools.partial(dir, module))  # type: ignore[method-assign]
            continue
        above, _, last = path.rpartition(".")
        parent = sys.modules[f"pe_cli.{above}"]
        if any((Path(folder) / f"{last}{end}").exists() for folder in getattr(parent, "__path__", ()) for end in (".py", "")):
            # Python's own import finds it; only packages without a file are made.
            continue  # imported when it is asked for
        module = ModuleType(full, f"Names of `{path}`, at a place where the original has them.")
        module.__getattr__ = missing(_said(path), list)  # type: ignore[method-assign]
        module.__path__ = []
        sys.modules[full] = module
        if last not in vars(parent):
            setattr(parent, last, module)


def _said(path: str) -> str:
    """Return how scripts call a module."""
    return path.removeprefix("paddle.") if path.startswith("paddle.fluid") else path


def elsewhere(source: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose names stand in another one.

    Args:
        source: full name of the other module.

    Raises:
        AttributeError: when called: it is not there either.
    """

    def getattribute(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(importlib.import_module(source), name)

    return getattribute


def places(package: str, sources: dict[str, str]) -> dict[str, ModuleType]:
    """Make modules that the original has and that have no file here, so that their paths can be imported.

    Args:
        package: full name of the package that they are in.
        sources: name of a module -> full name of the module that has its names; one that has a file is left out.

    Returns:
        Name -> module.
    """
    made = {}
    folder = Path(sys.modules[package].__file__ or "").parent
    for name, source in sources.items():
        if (folder / f"{name}.py").is_file():
            continue
        module = ModuleType(f"{package}.{name}", f"Names of `{source}`, at a place where the original has them.")
        module.__getattr__ = elsewhere(source)  # type: ignore[method-assign]
        made[name] = sys.modules[module.__name__] = module
    return made
