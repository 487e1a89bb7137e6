"""How ops are written in ONNX: a form stands in the op's own file and knows ONNX by the names of its nodes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pe_cli.core.types import TensorType
from pe_cli.ops.define.traits import Trait

#: Numbers of element types in ONNX's files.
ELEMENTS = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float64": 11, "bfloat16": 16}


def element_type(dtype: str) -> int:
    """Return ONNX's number of an element type."""
    return ELEMENTS[dtype]


class Writer(Protocol):
    """Appends the nodes of one operator to a graph; see `pe_cli.io.onnx.writer`."""

    op: Any
    attrs: Mapping[str, Any]

    def has(self, slot: str) -> bool:
        """Whether an input is there."""

    def wanted(self, slot: str) -> bool:
        """Whether an output is there."""

    def ins(self, slot: str) -> list[str]:
        """Return the names of a list slot."""

    def x(self, slot: str = "X") -> str:
        """Return the name of an input."""

    def type_of(self, name: str) -> TensorType:
        """Return the type of a variable."""

    def type(self, slot: str = "X") -> TensorType:
        """Return the type of an input."""

    def out_type(self, slot: str = "Out") -> TensorType:
        """Return the type of an output."""

    def node(self, kind: str, inputs: Sequence[str], *, to: str | None = None, **attrs: Any) -> str:
        """Append a node and return the name of its output."""

    def nodes(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> None:
        """Append a node with several outputs, whose names are given."""

    def fresh(self) -> str:
        """Return a name for a value in between."""

    def inside(self) -> Writer:
        """Return a writer of nodes that one of this operator's runs."""

    def region(self, region: Any, args: Sequence[tuple[str, TensorType]]) -> list[tuple[str, TensorType]]:
        """Append the nodes of a region's operators; return its results."""

    def body(self, inputs: Sequence[tuple[str, TensorType]], outputs: Sequence[tuple[str, TensorType]]) -> Any:
        """Return the nodes that were written as an attribute of another node."""

    def const(self, value: Any, like: str | None = None, dtype: str | None = None) -> str:
        """Return the name of a constant."""


#: Writes one operator: `form(o)`.
Form = Callable[[Writer], None]


class OnnxForm(Trait):
    """The op can be exported.

    Args:
        write: writes one operator.
    """

    write: Form

    def says(self) -> tuple[str, str]:
        return "ONNX", "exported"


class NoOnnxForm(Trait):
    """The op cannot be exported.

    Args:
        why: the end of "op X has no form in ONNX: ...".
    """

    why: str

    def says(self) -> tuple[str, str]:
        return "ONNX", f"not exported: {self.why}"


#: Forms of ops, by name; `discover` makes traits of them.
FORMS: dict[str, Form] = {}
#: Why ops have none, by name; `discover` makes traits of them, and of what `FAMILIES` says.
WITHOUT: dict[str, str] = {}
#: Why the ops of whole families have no form, but for those that have one.
FAMILIES = {
    "update": "it trains",
    "remote": "it talks to parameter servers",
    "fused": "a pass makes it of ops that have forms, after the program that is exported",
}
GRADIENT = "it is a gradient"
UNWRITTEN = "nobody has written one"
PLUGIN = "its plugin does not write any"
LOSS = "it is a loss or a metric of training; its inputs can be exported"
TARGETS = "it makes targets for training"
SAMPLES = "it draws what training compares with"
LISTS = "ONNX has no lists of tensors with sequences, which loops on the host go through"
ON_HOST = "it makes sequences of which only values tell the lengths, and ONNX's values have no sequences"
PADDED = "model files have rows in blocks instead, which are exported"
VARIED = "its images have a size each, in one tensor"


def in_onnx(*names: str) -> Callable[[Form], Form]:
    """Register how ops of these names are written."""

    def keep(fn: Form) -> Form:
        for name in names:
            assert FORMS.setdefault(name, fn) is fn, f"{name} has two ONNX forms"
        return fn

    return keep


def not_in_onnx(why: str, *names: str) -> None:
    """Register why ops of these names have no form."""
    for name in names:
        assert WITHOUT.setdefault(name, why) == why, f"two reasons why {name} has no ONNX form"


def onnx_trait(name: str, module: str, gradient: bool) -> Trait:
    """Return what an op has to say about ONNX.

    Args:
        name: of the op.
        module: where it is declared.
        gradient: whether it is one.
    """
    if name in FORMS:
        assert name not in WITHOUT, f"{name} has an ONNX form and a reason why it has none"
        return OnnxForm(FORMS[name])
    # pe_cli, ops, and the family; modules elsewhere are plugins.
    family = FAMILIES.get(module.split(".")[2]) if module.startswith("pe_cli.ops.") else PLUGIN
    return NoOnnxForm(WITHOUT.get(name) or (GRADIENT if gradient else family) or UNWRITTEN)


#: How arrays that are made of offsets before a step are made by nodes: X are their sources, Out is the array.
MADE: dict[Callable[..., Any], Form] = {}


def made_in_onnx(*makes: Callable[..., Any]) -> Callable[[Form], Form]:
    """Register how what these functions make before a step is made by nodes; see `pe_cli.ops.define.lod.Recipe`."""

    def keep(fn: Form) -> Form:
        MADE.update(dict.fromkeys(makes, fn))
        return fn

    return keep


def same_in_onnx(kinds: Mapping[str, str], *, axes: bool = False) -> None:
    """Register ops that are one node of ONNX, without attributes.

    Args:
        kinds: op -> kind of node.
        axes: of X and Y, where the attribute `axis` says which axes of the one are those of the other.
    """
    for name, kind in kinds.items():

        # The default binds this round's kind; a closure would see that of the last round.
        def write(o: Writer, kind: str = kind) -> None:
            o.node(kind, aligned(o) if axes else [o.x()], to="Out")

        in_onnx(name)(write)


def aligned(o: Writer) -> list[str]:
    """Return X and Y, the one with fewer axes reshaped so that its axes stand where the attribute `axis` says."""
    x, y = o.type("X"), o.type("Y")
    axis = o.attrs["axis"]
    names = [o.x("X"), o.x("Y")]
    if axis < 0 or len(x.shape) == len(y.shape):
        return names
    small = int(len(x.shape) > len(y.shape))
    wide, narrow = (x, y) if small else (y, x)
    # ONNX lines shapes up at their last axes only: axes of 1 behind the narrow one's move them forward.
    behind = len(wide.shape) - axis - len(narrow.shape)
    if behind > 0:
        added = list(range(len(narrow.shape), len(narrow.shape) + behind))
        names[small] = o.node("Unsqueeze", [names[small], o.const(added)])
    return names


def first_channels(o: Writer, name: str, attribute: str) -> str:
    """Return an image with channels first, as ONNX has it."""
    return name if o.attrs[attribute] == "NCHW" else o.node("Transpose", [name], perm=[0, 3, 1, 2])


def as_written(o: Writer, name: str, attribute: str, to: str) -> None:
    """Write an image with channels first in the op's own order."""
    if o.attrs[attribute] == "NCHW":
        o.node("Identity", [name], to=to)
    else:
        o.node("Transpose", [name], to=to, perm=[0, 2, 3, 1])
