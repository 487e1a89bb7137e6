"""Names and forms that Python, NumPy and other packages had when scripts for 1.3 to 1.8 were written, and have dropped since."""

from __future__ import annotations

import base64
import collections.abc
import functools
import inspect
import math
import sys
import time
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

_ArgSpec = namedtuple("_ArgSpec", ("args", "varargs", "keywords", "defaults"))


def _getargspec(func: Any) -> Any:
    found = inspect.getfullargspec(func)
    if found.kwonlyargs or found.annotations:
        raise ValueError("Function has keyword-only parameters or annotations, use inspect.signature() API which can support them")
    return _ArgSpec(found.args, found.varargs, found.varkw, found.defaults)


def _strtobool(val: str) -> int:
    text = val.lower()
    if text in ("y", "yes", "t", "true", "on", "1"):
        return 1
    if text in ("n", "no", "f", "false", "off", "0"):
        return 0
    raise ValueError(f"invalid truth value {text!r}")


#: Where they were, and what they were other names of.
DROPPED: Mapping[str, Mapping[str, Any]] = {
    "collections": {name: getattr(collections.abc, name) for name in collections.abc.__all__ if name != "Buffer"},
    "time": {"clock": time.process_time},
    "inspect": {"getargspec": _getargspec},
    "fractions": {"gcd": math.gcd},
    "base64": {"encodestring": base64.encodebytes, "decodestring": base64.decodebytes},
    "numpy": {
        "int": int, "float": float, "complex": complex, "object": object, "str": str, "unicode": str, "bool": bool, "long": int,
        "float_": "float64", "complex_": "complex128", "string_": "bytes_", "unicode_": "str_",
        "NaN": "nan", "NAN": "nan", "Inf": "inf", "Infinity": "inf", "infty": "inf", "PINF": "inf", "NINF": -np.inf,
        "product": "prod", "cumproduct": "cumprod", "sometrue": "any", "alltrue": "all", "round_": "round", "trapz": "trapezoid",
        "mat": "asmatrix", "row_stack": "vstack", "asscalar": lambda a: a.item(), "in1d": lambda a, b: np.isin(np.ravel(a), b),
        "msort": lambda a: np.sort(a, axis=0),
    },
    "PIL.Image": {"ANTIALIAS": "LANCZOS", "LINEAR": "BILINEAR", "CUBIC": "BICUBIC"},
}  # fmt: skip


def _with_full_loader(old: Callable[..., Any], module: ModuleType, stream: Any, *args: Any, **kwargs: Any) -> Any:
    """PyYAML up to 5.4 loads with FullLoader where no loader is named."""
    if args or "Loader" in kwargs:
        return old(stream, *args, **kwargs)
    _say(f"yaml.{old.__name__} without a Loader", sys._getframe(1))
    return old(stream, Loader=module.FullLoader, **kwargs)


def _without_encoding(old: Callable[..., Any], module: ModuleType, *args: Any, **kwargs: Any) -> Any:
    """Python up to 3.8 ignores the encoding of JSON, as text has none."""
    if "encoding" in kwargs:
        del kwargs["encoding"]
        _say(f"json.{old.__name__} with an encoding", sys._getframe(1))
    return old(*args, **kwargs)


#: Functions that are there, of which a form is not: by module and name, what stands in for the function.
CHANGED: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "yaml": {"load": _with_full_loader, "load_all": _with_full_loader},
    "json": {"load": _without_encoding, "loads": _without_encoding},
}
#: Modules that Python has dropped, with what scripts take from them; another package may bring the whole module.
MODULES: Mapping[str, Mapping[str, Any]] = {"distutils": {"__path__": []}, "distutils.util": {"strtobool": _strtobool}}


class _Dropped:
    """A name of a module; what the module or a script sets stands before it.

    Args:
        other: name of the module that it was another one of, or the value.
    """

    def __init__(self, other: Any) -> None:
        self.other = other
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: ModuleType, owner: type) -> Any:
        found = getattr(module, self.other) if isinstance(self.other, str) else self.other
        # From now on it is there without a question.
        vars(module)[self.name] = found
        _say(f"{module.__name__}.{self.name}", sys._getframe(1))
        return found


def give(module: ModuleType) -> None:
    """Let a module have its dropped names and forms again; what it has stays."""
    for name, form in CHANGED.get(module.__name__, {}).items():
        old = getattr(module, name)
        setattr(module, name, functools.wraps(old)(functools.partial(form, old, module)))
    if module.__name__ not in DROPPED:
        return
    names = {name: _Dropped(other) for name, other in DROPPED[module.__name__].items()}
    # By its class, as a function of the module would stand in the traceback of any other name that it lacks.
    module.__class__ = type("module", (type(module),), names)


#: Whether the user was told.
_said: list[bool] = []


def _say(name: str, frame: FrameType | None) -> None:
    """Say once in a process that a script uses a name that is there under `pe run` alone."""
    # Imports stand between a script and what it imports; libraries may ask for names that they can do without.
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    file = frame.f_code.co_filename if frame is not None else ""
    libraries = (sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]))
    if _said or frame is None or file.startswith(libraries):
        return
    _said.append(True)
    who = {"numpy": "NumPy", "PIL": "Pillow", "yaml": "PyYAML"}.get(name.partition(".")[0], "Python")
    said = f"{who} has dropped {name}; under pe run it is there again, and so are other such names"
    print(f"{_short(file)}:{frame.f_lineno}: note: {said}", file=sys.stderr)  # noqa: T201


def _short(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


class _GivesNames(MetaPathFinder, Loader):
    """Imports a module as ever, and gives it its names."""

    def __init__(self) -> None:
        self.specs: dict[str, ModuleSpec] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import one of the modules; None where it is another one, or not installed."""
        found = PathFinder.find_spec(fullname, path, target) if fullname in DROPPED or fullname in CHANGED else None
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


class _GivesModules(MetaPathFinder, Loader):
    """Imports a module that nothing else has."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import one of the modules; None where it is another one."""
        return ModuleSpec(fullname, self, origin=__file__) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Give it what it has."""
        vars(module).update(MODULES[module.__name__])
        _say(module.__name__, sys._getframe(1))


def install() -> None:
    """Let the names be there from now on, in modules that are imported and in those that will be."""
    if any(isinstance(finder, _GivesNames) for finder in sys.meta_path):
        return
    for name in (*DROPPED, *CHANGED):
        if name in sys.modules:
            give(sys.modules[name])
    sys.meta_path.insert(0, _GivesNames())
    # Behind all others: setuptools may bring a module that Python has dropped.
    sys.meta_path.append(_GivesModules())
