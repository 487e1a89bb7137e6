"""The catalogue of operators: what an op is called, takes, gives, computes and how it is differentiated.

An op is declared by decorating its shape inference:

    @op("softmax", inputs="X", outputs="Out", samples=[Sample({"X": (4, 7)})])
    def softmax(x: TensorType) -> TensorType:
        '''Turn each row into probabilities. ...'''
        return x

    @softmax.lower("cpu")
    def softmax_cpu(o: Lowering) -> None:
        o.call(softmax_kernel, o.input("X"), o.output("Out"), rows, cols)

    @softmax.grad(uses="Out").lower("cpu")
    def softmax_grad_cpu(o: Lowering) -> None: ...

Slots are words: `X`; `Bias?` may be absent; `X*` takes a list.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.onnx import onnx_trait
from pe_cli.ops.define.schema import Attr, OpDesc, Sample, Slot, converted, slots
from pe_cli.ops.define.traits import (
    AddsUp,
    Counted,
    Divisible,
    InPlace,
    Layout,
    NamesOnly,
    Narrow,
    OnHost,
    Sequenced,
    Trait,
)

AnyTrait = TypeVar("AnyTrait", bound=Trait)

GRAD = "@GRAD"
ADDTO = "@ADDTO"
RATE = "@RATE"


def grad_name(name: str) -> str:
    """Return the name of the gradient of a variable or slot."""
    return name + GRAD


def added_slot(slot: str) -> str:
    """Return the input slot of what a gradient is added to: `X@GRAD` -> `X@ADDTO`."""
    return forward_name(slot) + ADDTO


def rate_slot(slot: str) -> str:
    """Return the input slot of what a gradient is multiplied with before it is subtracted: `X@GRAD` -> `X@RATE`."""
    return forward_name(slot) + RATE


def forward_name(name: str) -> str:
    """Return the variable or slot whose gradient this name is (`x@GRAD@RENAME@0` -> `x`)."""
    return name.split(GRAD)[0]


class OpDef:
    """Everything about one op. Made by `op`, never by hand.

    Attributes:
        name: fluid's name.
        infer: see `op`; None for gradient ops, whose outputs have the types of what they are gradients of.
        inputs, outputs: slots in order.
        floats: input slots that hold float32 or float64.
        attrs: by name.
        differentiable: input slots that gradients flow to.
        samples: for the generated tests.
        kinks: `f(arrays) -> bool mask or list of (slot, values)`: where the op is not smooth; see tests/ops.
        grad_tolerance: relative tolerance of the float64 gradient check.
        lowerings: kind of device -> how the op becomes kernel calls there.
        grad_op, grad_maker: the gradient, one op or made of several.
        is_grad_of: name of the forward op, for gradient ops.
        module: where it is declared.
        traits: what else it can do, by class.
        faces: functions and classes that only hand their arguments to it.
    """

    def __init__(self, name: str, infer: Callable[..., Any] | None) -> None:
        self.name = name
        self.infer = infer
        self.inputs: tuple[Slot, ...] = ()
        self.outputs: tuple[Slot, ...] = ()
        self.floats: tuple[str, ...] = ()
        self.attrs: dict[str, Attr] = {}
        self.differentiable: tuple[str, ...] = ()
        self.samples: tuple[Sample, ...] = ()
        self.kinks: Any = None
        self.grad_tolerance = 1e-6
        self.lowerings: dict[str, Callable[[Any], None]] = {}
        self.grad_op: OpDef | None = None
        self.grad_maker: Callable[[Any], list[OpDesc]] | None = None
        self.is_grad_of: str | None = None
        self.module = ""
        self.traits: dict[type[Trait], Trait] = {}
        self.faces: tuple[Face | Functional, ...] = ()

    @property
    def doc(self) -> str:
        """The docstring of the inference; of a gradient op, what it is the gradient of."""
        return inspect.getdoc(self.infer) or "" if self.infer else f"Gradient of {self.is_grad_of}."

    def give(self, *traits: Trait) -> None:
        """Add traits; one of each class."""
        for trait in traits:
            assert type(trait) not in self.traits, f"{self.name} has two traits {type(trait).__name__}"
            self.traits[type(trait)] = trait

    def get(self, kind: type[AnyTrait]) -> AnyTrait | None:
        """Return the trait of a class, None where the op lacks it."""
        return self.traits.get(kind)  # type: ignore[return-value]

    def has(self, kind: type[Trait]) -> bool:
        """Whether the op has a trait of a class."""
        return kind in self.traits

    def flops(self) -> Callable[..., int]:
        """Return what counts the floating-point operations of a call, of an op that is `Counted`."""
        counted = self.get(Counted)
        assert counted is not None, f"{self.name} does not count operations"
        return counted.flops

    def slot_names(self, *, outputs: bool) -> list[str]:
        """Return the names of input or of output slots."""
        return [s.name for s in (self.outputs if outputs else self.inputs)]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def lower(self, kind: str) -> Callable[[Any], Any]:
        """Register how the op becomes kernel calls on a kind of device (`cpu`, `cuda`)."""

        def keep(fn: Callable[[Any], None]) -> Callable[[Any], None]:
            assert kind not in self.lowerings, f"{self.name} is lowered for {kind} twice"
            self.lowerings[kind] = fn
            return fn

        return keep

    def host(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Register what computes the outputs from arrays, on the host; see `OnHost`."""
        assert not self.lowerings, f"{self.name} is lowered and runs on the host"
        self.give(OnHost(fn))
        return fn

    def host_run(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Register what computes the outputs from a `lod.HostRun`, where sequences or draws count."""
        assert not self.lowerings, f"{self.name} is lowered and runs on the host"
        self.give(OnHost(fn, whole=True))
        return fn

    def grad(
        self,
        *,
        uses: str = "",
        adds: str = "",
        descends: str = "",
        overwrites: Callable[[Mapping[str, Any]], str] | None = None,
        traits: Sequence[Trait] = (),
    ) -> OpDef:
        """Declare the gradient op `<name>_grad` and return it, for its lowerings.

        Its inputs are the forward slots in `uses` and the gradient of every forward output (`Out@GRAD`), its outputs the gradients of
        the differentiable inputs (`X@GRAD`, each absent where nobody needs it), its attributes the forward op's. An output gradient
        that nothing produced arrives as absent.

        The gradients in `adds` may be added to another: where the input `X@ADDTO` is given, X@GRAD becomes that plus the gradient, with the
        bits of a sum of the two, and may take over its memory (see `ops.addto`). Of those in `descends`, `X@RATE` times the gradient is
        subtracted from `X@ADDTO` where both are given, with the bits of sgd: it is a parameter, and X@GRAD is its new value. `overwrites`
        says of attributes why it had better not be so.
        """
        assert self.grad_op is None, f"{self.name} has two gradients"
        made = OpDef(f"{self.name}_grad", None)
        # A gradient may read inputs and outputs of its op alike: what is cheaper to keep is the op's own choice.
        known = {s.name: s for s in (*self.inputs, *self.outputs)}
        used = [known[name] for name in uses.split()]
        rule = self.get(Sequenced)
        # Sequences of the inputs are needed to make offsets on the host, even where no kernel reads the inputs' values.
        if rule is not None and rule.host_slots:
            named = [s for s in self.inputs if s not in used and s.name not in rule.host_slots]
            made.give(NamesOnly(tuple(s.name for s in named)))
            used += [Slot(s.name, True, s.variadic) for s in named]
        grads = [Slot(grad_name(s.name), True, s.variadic) for s in self.outputs]
        if adds:
            made.give(AddsUp(tuple(adds.split()), tuple(descends.split()), overwrites))
        # What a gradient may be added to, and the rate that it may be subtracted with, are further inputs, which most programs leave out.
        further = (*map(added_slot, adds.split()), *map(rate_slot, descends.split()))
        made.inputs = (*used, *grads, *(Slot(name, True) for name in further))
        made.outputs = tuple(Slot(grad_name(n), True, known[n].variadic) for n in self.differentiable)
        made.attrs = self.attrs
        made.is_grad_of = self.name
        made.module = self.module
        # Images of a gradient lie as those of its op.
        made.give(*traits, *([layout] if (layout := self.get(Layout)) else []))
        if narrow := self.get(Narrow):
            made.give(narrow.back([s.name for s in used], [s.name for s in grads]))
        self.grad_op = made
        OPS[made.name] = made
        return made

    def takes_over(self, given: Collection[str]) -> dict[str, str]:
        """Return output slot -> input slot whose memory it may use, with these input slots: what a gradient is added to comes first."""
        inplace, added = self.get(InPlace), self.get(AddsUp)
        found = dict(inplace.pairs) if inplace else {}
        return found | {s: added_slot(s) for s in (added.slots if added else ()) if added_slot(s) in given}

    def make_grad(self, fn: Callable[[Any], list[OpDesc]]) -> Callable[[Any], list[OpDesc]]:
        """Register a gradient made of other ops: `fn(GradRequest) -> [OpDesc]`."""
        self.grad_maker = fn
        return fn

    def sequences(
        self, host_slots: str = "", *, begins: bool = False, values: str = ""
    ) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
        """Register what the op does with sequences: `fn(LodRequest)`, for the op and its gradient.

        Args:
            host_slots: optional input slots that the rule fills; an op that has them already is left alone.
            begins: its output may have sequences where no input has.
            values: input slots whose values the rule may need before a step.
        """

        def keep(fn: Callable[[Any], None]) -> Callable[[Any], None]:
            # The gradient copies what is known of sequences when it is declared.
            assert self.grad_op is None, f"{self.name}: the gradient needs to know the LoD rule, declare it after that"
            self.give(Sequenced(fn, tuple(host_slots.split()), begins, tuple(values.split())))
            return fn

        return keep

    def count(self, fn: Callable[..., int]) -> Callable[..., int]:
        """Register floating-point operations of one call: called like `infer`."""
        self.give(Counted(fn))
        return fn

    def most_parts(self, fn: Callable[..., int]) -> Callable[..., int]:
        """Register how many parts there are at most, of an op that is `Divisible`: called like `infer`."""
        assert self.has(Divisible), f"{self.name} is not cut into parts"
        # Replaced, as `give` refuses a second trait of one class.
        self.traits[Divisible] = Divisible(fn)
        return fn

    def check_attrs(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all attributes with defaults filled in and numbers converted.

        Raises:
            PeError: an unknown attribute, a wrong type or a value that is not among the choices.
        """
        for name in given:
            # `op_role`, `op_namescope` and the like are fluid's notes on ops, which programs from there carry along.
            if name not in self.attrs and not name.startswith("op_"):
                raise PeError(f"op '{self.name}' has no attribute '{name}'", hint=did_you_mean(name, self.attrs))
        out = {}
        for name, attr in self.attrs.items():
            value = given.get(name, attr.default)
            out[name] = converted(self.name, name, value, attr)
        return out


#: Every op by name, gradients included. Filled by `discover`.
OPS: dict[str, OpDef] = {}


def op(
    name: str,
    *,
    inputs: str = "",
    outputs: str = "Out",
    floats: str = "",
    attrs: Mapping[str, Attr] | None = None,
    differentiable: str | None = None,
    samples: Sequence[Sample] = (),
    kinks: Any = None,
    grad_tolerance: float = 1e-6,
    traits: Sequence[Trait] = (),
    faces: Sequence[Face | Functional] = (),
) -> Callable[[Callable[..., Any]], OpDef]:
    """Declare an op by decorating its shape inference.

    The inference is called with one argument per input slot (TensorType; None for an absent optional slot; a list for `X*`) and the
    attributes as keywords; it returns the output's TensorType, or a tuple with one entry per output slot (a list for `Out*`; None for
    an output that does not exist). A size of -1 is not known yet. It raises `PeError` without a place.

    Args:
        floats: input slots whose variables must be float32 or float64; inference refuses others before it calls this one.
        differentiable: input slots that gradients flow to; default: every input, when a gradient is declared.
        samples, kinks, grad_tolerance: see `OpDef`.
        traits: what else it can do, see `pe_cli.ops.define.traits`.
        faces: layers and functions of 2.x that are this op, see `pe_cli.ops.define.faces`.
    """

    def make(infer: Callable[..., Any]) -> OpDef:
        assert name not in OPS, f"op {name} is declared twice"
        made = OpDef(name, infer)
        made.inputs, made.outputs = slots(inputs), slots(outputs)
        made.floats = tuple(floats.split())
        made.attrs = dict(attrs or {})
        names = [s.name for s in made.inputs]
        assert set(made.floats) <= set(names), f"{name} has no slots {floats}"
        made.differentiable = tuple(names if differentiable is None else differentiable.split())
        made.samples, made.kinks, made.grad_tolerance = tuple(samples), kinks, grad_tolerance
        made.module = infer.__module__
        made.faces = tuple(faces)
        made.give(*traits)
        OPS[name] = made
        return made

    return make


@dataclass(frozen=True)
class GradRequest:
    """What a hand-made gradient gets: the forward op's names, and which gradients are wanted.

    Args:
        op: the forward op (type, inputs, outputs, attrs).
        grads: gradient name of every forward output variable that has one.
        wanted: variables of the forward inputs whose gradient is wanted -> the name to write it to.
    """

    op: OpDesc
    grads: Mapping[str, str]
    wanted: Mapping[str, str]


@functools.cache
def discover() -> dict[str, OpDef]:
    """Import every module of `pe_cli.ops` once and return the catalogue."""
    package = importlib.import_module("pe_cli.ops")
    for info in pkgutil.walk_packages(package.__path__, "pe_cli.ops."):
        importlib.import_module(info.name)
    # Only now: a trait may speak of other ops, which have to be there.
    for found in OPS.values():
        found.give(onnx_trait(found.name, found.module, gradient=found.is_grad_of is not None))
        for trait in found.traits.values():
            trait.verify(found)
    return OPS


def find(name: str) -> OpDef:
    """Return an op by name.

    Raises:
        PeError: there is none, with the closest name as a hint.
    """
    # An op that is known already needs no look into the other files, whose import takes most of a start.
    catalogue = OPS if name in OPS else discover()
    if name not in catalogue:
        known = [n for n, d in catalogue.items() if d.is_grad_of is None]
        raise PeError(f"there is no op '{name}'", hint=did_you_mean(name, known))
    return catalogue[name]


__all__ = [
    "OPS", "Attr", "GradRequest", "OpDef", "OpDesc", "Sample", "Slot", "added_slot", "discover", "find", "forward_name", "grad_name", "op",
    "rate_slot", "slots",
]  # fmt: skip
