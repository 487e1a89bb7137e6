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
from pe_cli.paddle.refused import Refused, find


@functools.cache
def known() -> frozenset[str]:
    """Return every name of the original's reference."""
    text = (Path(__file__).parent / "reference_names.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text))


def missing(module: str, there: Callable[[], Iterable[str]]) -> Callable[[str], Any]:
    """Return a module's `__getattr__`; names that are refused are there, and raise where they are used.

    Args:
        module: as users call it.
        there: the names that it has, for a hint.

    Raises:
        AttributeError: when called: the name is not there, with a hint where there is one.
    """

    def getattribute(name: str) -> Any:
        refusal = None if name.startswith(("_", "pytest")) else find(module, name)
        if refusal is not None:
            return Refused(f"{module}.{name}", refusal)
        if name in known():
            raise AttributeError(f"{module}.{name} is a name of PaddlePaddle's reference that is not there yet")
        # Python and its tools ask for names of theirs that need not be there
        hint = "" if name.startswith(("_", "pytest")) else did_you_mean(name, [n for n in there() if not n.startswith("_")])
        raise AttributeError(f"{module} has no '{name}'" + (f" (hint: {hint})" if hint else ""))

    return getattribute


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


def refusing(package: str, paths: dict[str, str]) -> dict[str, ModuleType]:
    """Make modules of the original whose names are all refused.

    Args:
        package: full name of the package that they are in.
        paths: name of a module, with dots for those inside others -> as scripts call it.

    Returns:
        Name -> module, those inside others left out.
    """
    made = {}
    for name, path in paths.items():
        module = ModuleType(f"{package}.{name}", "Names of the original that are refused.")
        module.__getattr__ = missing(path, list)  # type: ignore[method-assign]
        module.__path__ = []
        sys.modules[module.__name__] = module
        above, _, last = name.rpartition(".")
        if above:
            setattr(sys.modules[f"{package}.{above}"], last, module)
        else:
            made[name] = module
    return made
