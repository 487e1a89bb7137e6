"""What an op can do besides computing its outputs. Passes, plans and pages ask for a trait, never for the name of an op.

A trait is declared with the op, `op(..., traits=[InPlace({"Out": "X"})])`, or by one of its decorators; all are verified once all ops are
there.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, dataclass_transform

from pe_cli.kernels.lang import Kernel

#: Stands for a field that has to be given.
_REQUIRED: Any = object()


class Named(Protocol):
    """What a trait looks at of an op."""

    name: str
    is_grad_of: str | None

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by name."""

    def slot_names(self, *, outputs: bool) -> list[str]:
        """Return the names of input or of output slots."""


@dataclass_transform(frozen_default=True)
class Trait:
    """Something that an op can do. Its subclasses are values: annotations are their fields, as of a frozen dataclass.

    Dataclasses compile their methods, which takes a third of a millisecond for each class, in every start of the program.
    """

    _fields: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls).get("__annotations__", {})
        cls._fields = {**cls._fields, **{name: vars(cls).get(name, _REQUIRED) for name in own}}

    def __init__(self, *args: Any, **given: Any) -> None:
        found = {**self._fields, **dict(zip(self._fields, args, strict=False)), **given}
        if len(args) > len(self._fields) or len(found) > len(self._fields) or _REQUIRED in found.values():
            raise TypeError(f"{type(self).__name__} takes {', '.join(self._fields) or 'nothing'}, got {args} {given}")
        vars(self).update(found)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} does not change")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), tuple(vars(self))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={v!r}' for n, v in vars(self).items())})"

    def verify(self, op: Named) -> None:
        """Check that the trait fits the op.

        Raises:
            AssertionError: it names a slot or an attribute that the op does not have.
        """

    def says(self) -> tuple[str, str] | None:
        """Return a title and a sentence for the op's page; None where users need not know."""
        return None


def _need(op: Named, names: Sequence[str], *, outputs: bool = False) -> None:
    known = op.slot_names(outputs=outputs)
    missing = [n for n in names if n not in known]
    assert not missing, f"{op.name} has no {'output' if outputs else 'input'} {', '.join(missing)}"


class InPlace(Trait):
    """An output may take over the memory of an input of the same type: its kernels allow out == x.

    Args:
        pairs: output slot -> input slot.
    """

    pairs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        _need(op, list(self.pairs), outputs=True)
        _need(op, list(self.pairs.values()))

    def says(self) -> tuple[str, str]:
        return "in place", ", ".join(f"{out} may take over {source}" for out, source in self.pairs.items())


class View(Trait):
    """An output is an input's bytes under another shape, so that the op needs no kernel on any device.

    Args:
        pairs: output slot -> input slot.
    """

    pairs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        _need(op, list(self.pairs), outputs=True)
        _need(op, list(self.pairs.values()))


class Random(Trait):
    """The op draws random numbers: its kernels see seed, step and sample offset."""

    def says(self) -> tuple[str, str]:
        return "random", "the same numbers for a seed, a step and a sample, on any number of devices"


class Replayed(Trait):
    """A random op whose result another op gives once more, without a random number.

    Args:
        by: that op; it takes the same inputs and attributes, and gives the outputs that are not in `kept`.
        kept: outputs of the random op that it takes, too, under the same names.
    """

    by: str
    kept: tuple[str, ...]

    def verify(self, op: Named) -> None:
        _need(op, self.kept, outputs=True)


class ReportsData(Trait):
    """Its kernels report errors in data, such as a label out of range, so that it counts even where its result does not."""


class Layout(Trait):
    """How the op treats the order of axes; one without this trait knows only the written order.

    Args:
        attr: name of its data-format attribute; empty for an op that is elementwise over tensors of one shape.
        slots: that hold images.
    """

    attr: str = ""
    slots: tuple[str, ...] = ()

    def verify(self, op: Named) -> None:
        assert not self.attr or self.attr in op.attrs, f"{op.name} has no attribute {self.attr}"
        if op.is_grad_of is None:
            known = {*op.slot_names(outputs=False), *op.slot_names(outputs=True)}
            assert known.issuperset(self.slots), f"{op.name} has no {', '.join(set(self.slots) - known)}"


class FedSizes(Trait):
    """A size that only a step knows: where the slot is there, its value becomes the attribute's.

    Args:
        attrs: input slot -> attribute.
    """

    attrs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        _need(op, list(self.attrs))
        assert all(name in op.attrs for name in self.attrs.values()), f"{op.name}: {self.attrs} names no attribute"


class OnHost(Trait):
    """The op runs on the host, as only values tell the sizes of its outputs; it has no lowering.

    Args:
        compute: `f(slot -> arrays, attrs) -> slot -> arrays`.
        whole: it is `f(HostRun) -> slot -> arrays` instead: it sees sequences, may draw, and may say the sequences of what it makes.
    """

    compute: Callable[..., Any]
    whole: bool = False


class Lists(Trait):
    """The op reads or writes a list of tensors of any sizes, which is the value of one variable and no array."""

    def says(self) -> tuple[str, str]:
        return "lists", "a list of tensors of any sizes is the value of one variable"


class Remote(Trait):
    """The op is a part of what trainers and parameter servers tell each other: it has no lowering, and runs between the parts of a step.

    Args:
        does: give, wait, take, taken, look_up, cut or stand_in, of trainers; serve or choose, of servers.
    """

    does: str


@dataclass(frozen=True)
class Scalar:
    """An element of a result as a function of the elements at the same place, for passes that join pointwise ops.

    Args:
        out: output slot, or a name for later ones.
        kernel: whose `each` is the function; None passes the argument on.
        args: input slots, of a variadic slot `X 0`, `X 1`, ..., or names of earlier ones.
        values: numbers that the function takes last.
    """

    out: str
    kernel: Kernel | None
    args: tuple[str, ...]
    values: tuple[float, ...] = ()


class Pointwise(Trait):
    """Every element of the outputs follows from the elements at the same place.

    Args:
        scalars: `f(attributes, inputs by slot) -> [Scalar]`, how the outputs are computed, in order; Y is broadcast by the attribute
            `axis` where the op has one. An empty list where these attributes ask for more.
    """

    scalars: Callable[[Mapping[str, Any], Mapping[str, Sequence[Any]]], list[Scalar]]


class Folds(Trait):
    """Where all elements of every input are one number, those of the output are, too.

    Args:
        value: `f(numbers of the inputs, attributes)` -> the number of the output, computed as the kernel does, in the inputs' type.
        alone: the attributes say the number, whatever the inputs are: `f((type,), attributes)`.
    """

    value: Callable[[Sequence[Any], Mapping[str, Any]], Any]
    alone: bool = False


class SameNumbers(Trait):
    """The output has the numbers of the input, in another order, shape or element type."""


class Absorbed(Trait):
    """Passes make the op a part of the one before it, whose threads share it.

    Args:
        parameter: input slot that has to be a parameter; empty for any.
    """

    parameter: str = ""


class Says(enum.Enum):
    """What a model says of a sample."""

    LOGITS = "logits"
    PROBABILITIES = "probabilities"


class Compares(Trait):
    """A loss: what the model says of each class against the class that it is.

    Args:
        scores, labels: input slots.
        are: what the scores are.
        several: scores of several classes, of which labels are numbers; else of one, which labels say yes or no to.
    """

    scores: str
    labels: str
    are: Says
    several: bool = True

    def verify(self, op: Named) -> None:
        _need(op, [self.scores, self.labels])


class ToProbabilities(Trait):
    """The op makes probabilities of logits, or their logarithms.

    Args:
        several: of the classes that an axis lists; else of each element by itself.
        logarithms: whether it gives those.
    """

    several: bool = True
    logarithms: bool = False


class Bounded(Trait):
    """No value that the op makes lies outside a range, whatever it reads.

    Args:
        low, high: ends of the range, which belong to it; no unit.
    """

    low: float = -math.inf
    high: float = math.inf

    def verify(self, op: Named) -> None:
        assert self.low < self.high, f"{op.name}: an empty range"


class Best(Trait):
    """The op finds the classes with the highest scores.

    Args:
        scores: input slot.
        places: output slot: their numbers.
    """

    scores: str
    places: str

    def verify(self, op: Named) -> None:
        _need(op, [self.scores])
        _need(op, [self.places], outputs=True)


class Judges(Trait):
    """The op compares the numbers of classes that were found with those of labels.

    Args:
        found, labels: input slots.
    """

    found: str
    labels: str

    def verify(self, op: Named) -> None:
        _need(op, [self.found, self.labels])


class FindsBoxes(Trait):
    """The op finds things in pictures.

    Args:
        boxes: output slot, [images, rows, 6]: class, score, left, top, right, bottom; class -1 where a row has none.
    """

    boxes: str

    def verify(self, op: Named) -> None:
        _need(op, [self.boxes], outputs=True)


class Table(Trait):
    """The op takes rows of a table: where its attribute is_sparse is set, the table's gradient is these rows alone.

    Args:
        table, ids: input slots.
        out: output slot.
    """

    table: str
    ids: str
    out: str

    def verify(self, op: Named) -> None:
        _need(op, [self.table, self.ids])
        _need(op, [self.out], outputs=True)
        assert "is_sparse" in op.attrs, op.name


class MergesRows(Trait):
    """The op makes a row-sparse gradient, of which every row is there once.

    Args:
        out, rows: output slots: the values, and the numbers of their rows.
    """

    out: str
    rows: str

    def verify(self, op: Named) -> None:
        _need(op, [self.out, self.rows], outputs=True)


class ByValue(Trait):
    """The op may take the values of a row-sparse gradient for a tensor: places without a row hold 0, and stay without one.

    Args:
        keeps_rows: whether its output is such a gradient of the same rows.
    """

    keeps_rows: bool = True


class UpdatesTable(Trait):
    """The op takes the step of a table together with the table's gradient, which is never there as a whole."""


class UpdatesMany(Trait):
    """Does for lists of parameters what an update op does for one; with an attribute `decay` it does their weight decay, too.

    Args:
        update: the op for one parameter; every slot of it but the learning rate's is a list here.
    """

    update: str

    def verify(self, op: Named) -> None:
        _need(op, ["Param", "Grad", "LearningRate"])
        _need(op, ["ParamOut"], outputs=True)

    def says(self) -> tuple[str, str]:
        return "updates many", f"takes the place of several `{self.update}` with the same learning rate and settings"


class BatchStatistics(Trait):
    """The op takes statistics of a device's own samples.

    Args:
        unless: attributes that make it take others.
    """

    unless: tuple[str, ...]

    def verify(self, op: Named) -> None:
        assert all(name in op.attrs for name in self.unless), f"{op.name} lacks one of {', '.join(self.unless)}"

    def applies(self, attrs: Mapping[str, Any]) -> bool:
        """Whether it does so with these attributes."""
        return not any(attrs[name] for name in self.unless)


class ByRows(Trait):
    """With an input Rows, what the op does for one of them touches nothing else, so that several threads may share them."""

    def verify(self, op: Named) -> None:
        _need(op, ["Rows"])


class RowsApart(Trait):
    """What the op makes of a row, along axis 0, of all tensors of the parameter's shape depends on that row and on single numbers alone.

    So processes may share the rows. With an input Rows that does not count: each row of the gradient has its number then.
    """


class OwnRows(Trait):
    """The op takes the rows of a variable that are this process's own, by its attributes rows and rank, or gives them.

    Args:
        slot: of the variable with all rows.
        gives: the other processes get the rows then.
    """

    slot: str
    gives: bool = False

    def verify(self, op: Named) -> None:
        _need(op, [self.slot], outputs=self.gives)


class Spreads(Trait):
    """An update whose native lowering is done in `Lowering.shares` parts and adds up the gradients of several devices itself."""

    def verify(self, op: Named) -> None:
        _need(op, ["Grad"])


class Divisible(Trait):
    """The native lowering of the op, and that of its gradient, are cut into parts that `Lowering.threads` share.

    Args:
        most: how many parts at most, called like the inference; None where that is only a matter of how much there is to do.
    """

    most: Callable[..., int] | None = None


class AddsUp(Trait):
    """Gradients that a gradient op adds to what `X@ADDTO` holds, where that is given, with the bits of a sum of the two.

    Args:
        slots: output slots.
        descends: those of them of which it subtracts `X@RATE` times the gradient, where that is given, too, with the bits of sgd.
        overwrites: attributes -> why it had better not with these; empty where it may.
    """

    slots: tuple[str, ...]
    descends: tuple[str, ...] = ()
    overwrites: Callable[[Mapping[str, Any]], str] | None = None

    def verify(self, op: Named) -> None:
        _need(op, self.slots, outputs=True)
        assert set(self.descends) <= set(self.slots), f"{op.name}: what descends is added to something, too"

    def says(self) -> tuple[str, str]:
        return "adds", f"{', '.join(self.slots)} to the inputs that end in @ADDTO, where they are given"


#: Attributes and shapes by slot, of a gradient op by the slots that its gradients are of -> whether something holds.
Holds = Callable[[Mapping[str, Any], Mapping[str, Sequence[int]]], bool]


class PassesGradient(Trait):
    """The gradient of an input that has the shape of the output is the gradient of that."""


class RowWise(Trait):
    """What the op, and its gradient, makes of a row, along axis 0, depends on that row alone; rows stay rows.

    Args:
        applies: whether that is so.
    """

    applies: Holds = lambda attrs, shapes: True


class SumsRows(Trait):
    """What the op makes of a row, along axis 0, depends on that row alone, and gradients of some inputs add up over the rows.

    So the gradients of several batches add up to that of one batch of all their rows.

    Args:
        slots: the inputs that all rows share.
        applies: whether that is so.
    """

    slots: tuple[str, ...]
    applies: Holds = lambda attrs, shapes: True

    def verify(self, op: Named) -> None:
        _need(op, self.slots)


class Sequenced(Trait):
    """What the op does with sequences, see `pe_cli.ops.define.lod`; an op without it hands on the LoD of inputs whose rows it keeps.

    Args:
        rule: `f(LodRequest)`, for the op and its gradient.
        host_slots: optional input slots that the rule fills with arrays made from offsets before a step.
        begins: its output may have sequences where no input has.
    """

    rule: Callable[[Any], None]
    host_slots: tuple[str, ...] = ()
    begins: bool = False

    def verify(self, op: Named) -> None:
        _need(op, self.host_slots)


class NamesOnly(Trait):
    """Inputs of a gradient op that its kernels do not read: their names tell the rule of `Sequenced` whose sequences count."""

    slots: tuple[str, ...]

    def verify(self, op: Named) -> None:
        _need(op, self.slots)


class Runs(enum.Enum):
    """How an op runs its regions."""

    #: As many times as a number says, or the first axis of what is gone through.
    ROUNDS = "rounds"
    #: As long as the first of its regions gives true.
    WHILE = "while"
    #: One of two, once.
    BRANCH = "branch"


class HasRegions(Trait):
    """The op runs ops of its own, see `pe_cli.program.region`.

    Args:
        runs: how.
        attrs: attributes that are regions it runs.
    """

    runs: Runs
    attrs: tuple[str, ...]

    def verify(self, op: Named) -> None:
        assert all(name in op.attrs for name in self.attrs), f"{op.name} lacks one of {', '.join(self.attrs)}"

    def says(self) -> tuple[str, str]:
        return "regions", f"{', '.join(self.attrs)}: ops that it runs"


class ReadsAllDevices(Trait):
    """An input slot takes a variable from every device with samples."""

    slot: str

    def verify(self, op: Named) -> None:
        _need(op, [self.slot])


class Counted(Trait):
    """How many floating-point operations a call takes.

    Args:
        flops: called like the inference; below 0 where it cannot tell.
    """

    flops: Callable[..., int]

    def says(self) -> tuple[str, str]:
        return "FLOPs", "counted"
