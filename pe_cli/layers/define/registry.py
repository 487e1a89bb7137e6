"""The catalogue of layers. A layer is a function; its signature and annotations say what a config may write."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, overload

from pe_cli.config.plugins import is_foreign, offered
from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.replacements import REPLACEMENTS

#: Where the folders of the families are.
_FAMILIES = Path(__file__).parents[1]

Fn = TypeVar("Fn", bound=Callable[..., Any])

#: Annotation of a parameter -> kind of value that a config gives for it.
KINDS = {
    "Variable": "variable",
    "list[Variable]": "variables",
    "int": "int",
    "Size": "size",
    "Sizes": "sizes",
    "int | Sizes": "int_or_sizes",
    "Number": "number",
    "list[int]": "ints",
    "int | list[int]": "int_or_ints",
    "int | list[int] | str": "int_or_ints_or_str",
    "float": "float",
    "list[float]": "floats",
    "list[list[float]]": "float_lists",
    "bool": "bool",
    "str": "str",
    "list[str]": "strs",
    "ParamAttr": "param_attr",
    "ParamAttr | bool": "param_attr",
    "Initializer": "initializer",
}


@dataclass(frozen=True)
class LayerArg:
    """One argument of a layer.

    Args:
        name: as in Python and YAML.
        kind: a value of `KINDS`.
        default: the default, None where required.
        required: has no default.
        optional: may be null.
    """

    name: str
    kind: str
    default: Any
    required: bool
    optional: bool


@dataclass(frozen=True)
class LayerDef:
    """One layer: a function, whose signature and docstring are read when somebody asks for them.

    Args:
        name: in configs.
        fn: appends ops.
        labels: arguments that take what the layer's other input is compared with.
        judges: it measures and is no loss.
        answers: what it is given beside the label says what the label is; not so where it is given pairs, or a logarithm of the label.
            The name of an argument: where that is false.
        made_of: the op that it appends, where there is another op of its own name.
        writes: returns the function's docstring, where that is made of another one.
        shown: a small model file with it, where none of the `examples.yaml` has one.
    """

    name: str
    fn: Callable[..., Any]
    labels: tuple[str, ...] = ("label", "labels")
    judges: bool = False
    answers: bool | str = True
    made_of: str = ""
    writes: Callable[[], str] | None = None
    shown: str = ""

    @functools.cached_property
    def args(self) -> dict[str, LayerArg]:
        """The arguments by name, in order. The first variable argument is the implied input."""
        parameters = inspect.signature(self.fn).parameters.values()
        return {p.name: _argument(self.fn, p) for p in parameters if p.name != "name"}

    @property
    def doc(self) -> str:
        """The function's docstring."""
        if self.writes is not None and self.fn.__doc__ is None:
            self.fn.__doc__ = self.writes()
        return inspect.getdoc(self.fn) or ""

    @property
    def example(self) -> str:
        """A small model file with this layer: of the `examples.yaml` of a family, or of one beside a module of others, or its own.

        A layer whose required arguments are all variables needs none: it is given a feed for each.
        """
        folder = Path(inspect.getfile(self.fn)).parent if is_foreign(self.fn.__module__) else _FAMILIES
        for file in sorted(folder.glob("examples.yaml" if is_foreign(self.fn.__module__) else "*/examples.yaml")):
            if self.name in _examples(file):
                return _examples(file)[self.name]
        required = [a for a in self.args.values() if a.required]
        if self.shown:
            return inspect.cleandoc(self.shown) + "\n"
        if {a.kind for a in required} != {"variable"}:
            return ""
        feeds = "".join(f"  {a.name}: {{shape: [4]}}\n" for a in required)
        return f"feeds:\n{feeds}layers:\n  out: {{type: {self.name}, {', '.join(f'{a.name}: {a.name}' for a in required)}}}\n"

    @property
    def implied(self) -> str | None:
        """The argument that takes the previous layer's output when nothing is written."""
        return next((a.name for a in self.args.values() if a.kind in ("variable", "variables") and a.required), None)


@functools.cache
def _examples(file: Path) -> dict[str, str]:
    import yaml  # only `pe ops` and the reference need it

    found: dict[str, str] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def _argument(fn: Callable[..., Any], parameter: inspect.Parameter) -> LayerArg:
    said = parameter.annotation
    # as it is written; types that were not left as text name their modules, too
    text = said if isinstance(said, str) else re.sub(r"[\w.]+\.(?=\w)", "", inspect.formatannotation(said))
    optional = text.endswith(" | None")
    kind = KINDS.get(text.removesuffix(" | None"))
    if kind is None:
        what = "no annotation" if said is inspect.Parameter.empty else f"the annotation '{text}'"
        raise PeError(
            f"layer '{fn.__name__}': argument {parameter.name} has {what}, which no config can give",
            hint=f"one of {', '.join(KINDS)}, each also with | None",
        )
    required = parameter.default is inspect.Parameter.empty
    return LayerArg(parameter.name, kind, None if required else parameter.default, required, optional)


#: Every layer by name. Filled by `discover`.
LAYERS: dict[str, LayerDef] = {}


@overload
def layer(fn: Fn) -> Fn: ...
@overload
def layer(
    *, name: str | None = None, label: str | tuple[str, ...] = "", judges: bool = False, answers: bool | str = True,
    made_of: str = "", writes: Callable[[], str] | None = None, example: str = "",
) -> Callable[[Fn], Fn]: ...
def layer(
    fn: Any = None, *, name: str | None = None, label: str | tuple[str, ...] = "", judges: bool = False, answers: bool | str = True,
    made_of: str = "", writes: Callable[[], str] | None = None, example: str = "",
) -> Any:  # fmt: skip
    """Register a layer function under its own or another name. Arguments called `name` are not offered to configs.

    Args:
        fn: the function.
        name: of the layer.
        label: argument that takes what the other input is compared with, where it is called neither label nor labels; of several the
            first one is what the other input says.
        judges: see `LayerDef`.
        answers: see `LayerDef`.
        made_of: see `LayerDef`.
        writes: see `LayerDef`.
        example: see `LayerDef.shown`.

    Raises:
        PeError: USAGE; a package of others takes a name that there is, or its layer has an argument of a kind that is none of `KINDS`.
    """
    if fn is None:
        facts = {"label": label, "judges": judges, "answers": answers, "made_of": made_of, "writes": writes, "example": example}
        return functools.partial(layer, name=name, **facts)
    key = name or fn.__name__
    if is_foreign(fn.__module__):
        known = discover().get(key)
        if known is not None and known.fn.__module__ != fn.__module__:
            raise PeError(f"there is a layer '{key}' already", hint="give the layer another name")
    else:
        assert key not in LAYERS, f"layer {key} is registered twice"
    labels = label if isinstance(label, tuple) else (label,) if label else LayerDef.labels
    made = LayerDef(key, fn, labels, judges, answers, made_of, writes, example)
    if is_foreign(fn.__module__):
        made.args  # noqa: B018 - told where it is loaded; ours are read when they are asked for
    LAYERS[key] = made
    return fn


@functools.cache
def discover() -> dict[str, LayerDef]:
    """Import every module of this package once and return the catalogue."""
    package = importlib.import_module("pe_cli.layers")
    for info in pkgutil.walk_packages(package.__path__, "pe_cli.layers."):
        importlib.import_module(info.name)
    return LAYERS


def find(name: str) -> LayerDef:
    """Return a layer by name.

    Raises:
        PeError: there is none, with the closest name as a hint.
    """
    # A layer of a module that is loaded is found without importing all others, which takes longer than small runs.
    catalogue = LAYERS if name in LAYERS else discover()
    if name not in catalogue and name in REPLACEMENTS:
        why, use = REPLACEMENTS[name]
        raise PeError(f"'{name}' of fluid.layers is no layer of a model file: {why}", hint=use)
    if name not in catalogue:
        hint = offered("layers", name) or did_you_mean(name, catalogue) or "pe ops lists all layers"
        raise PeError(f"there is no layer type '{name}'", hint=hint)
    return catalogue[name]
