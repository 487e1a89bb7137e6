"""Names that NumPy and Pillow had when scripts for 1.3 to 1.8 were written, and have dropped since."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import numpy as np

#: Where they were, and what they were other names of.
DROPPED: Mapping[str, Mapping[str, Any]] = {
    "numpy": {
        "int": int, "float": float, "complex": complex, "object": object, "str": str, "unicode": str,
        "float_": "float64", "complex_": "complex128", "string_": "bytes_", "unicode_": "str_",
        "NaN": "nan", "NAN": "nan", "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf", "NINF": -np.inf,
        "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all", "round_": "round", "trapz": "trapezoid",
        "mat": "asmatrix", "row_stack": "vstack", "asscalar": lambda a: a.item(), "in1d": lambda a, b: np.isin(np.ravel(a), b),
        "msort": lambda a: np.sort(a, axis=0),
    },
    "PIL.Image": {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"},
}  # fmt: skip


def give(module: ModuleType) -> None:
    """Let a module have its dropped names again; what it has stays."""
    known = vars(module)
    for name, other in DROPPED[module.__name__].items():
        if name not in known:
            known[name] = getattr(module, other) if isinstance(other, str) else other


class _GivesNames(MetaPathFinder, Loader):
    """Imports a module as ever, and gives it its names."""

    def __init__(self) -> None:
        self.specs: dict[str, ModuleSpec] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import one of the modules; None where it is another one, or not installed."""
        found = PathFinder.find_spec(fullname, path, target) if fullname in DROPPED else None
        if found is None or found.loader is None:
            return None
        self.specs[fullname] = found
        made = ModuleSpec(fullname, self, origin=found.origin, is_package=found.submodule_search_locations is not None)
        made.has_location = found.has_location
        made.submodule_search_locations = found.submodule_search_locations
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's own code."""
        found = self.specs[module.__name__].loader
        assert found is not None
        found.exec_module(module)
        give(module)


def install() -> None:
    """Let the names be there from now on, in modules that are imported and in those that will be."""
    for name in DROPPED:
        if name in sys.modules:
            give(sys.modules[name])
    if not any(isinstance(finder, _GivesNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _GivesNames())
