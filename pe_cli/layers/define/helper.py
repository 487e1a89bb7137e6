"""LayerHelper: what layer functions share: names, parameters and their first values, outputs, bias and activation."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import PeError, WrongType, did_you_mean
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.layers.define.weight_norm import weight_norm
from pe_cli.ops.define.faces import Face
from pe_cli.ops.define.registry import discover
from pe_cli.program.defaults import default_main_program, default_startup_program
from pe_cli.program.initializer import Constant, Initializer, Xavier
from pe_cli.program.ir import Block, Parameter, Program, Variable
from pe_cli.program.param_attr import ParamAttr, WeightNormParamAttr

#: Further ops and layers that `act` takes: one variable, of the shape that they give.
FURTHER_ACTIVATIONS = ("acos", "asin", "atan", "cosh", "erf", "log1p", "selu", "sequence_softmax", "sinh", "tan")
#: Those that are layers of several ops.
_OF_LAYERS = ("selu",)


@functools.cache
def activations() -> tuple[str, ...]:
    """Return the ops whose names layers take as `act`: those that declare so."""
    return tuple(sorted(name for name, found in discover().items() if any(isinstance(f, Face) and f.act for f in found.faces)))

#: Initializers of weights ("w") and biases ("b") that a user has set for all layers, before what a layer takes by default.
FIRST_VALUES: dict[str, Initializer | None] = {"w": None, "b": None}


class LayerHelper:
    """One call of a layer function.

    Args:
        layer_type: name of the layer; unnamed calls become `fc_0`, `fc_1`, ...
        name: given by the user, or None; prefix of every variable that the call makes.
    """

    def __init__(self, layer_type: str, name: str | None = None) -> None:
        self.layer_type = layer_type
        self.program = default_main_program()
        self.startup = default_startup_program()
        self.name = name or self.program.around or _unused(self.program, layer_type)

    @property
    def block(self) -> Block:
        """The block that ops are appended to."""
        return self.program.main_block

    # --- ops ---------------------------------------------------------------------------------------------------------

    def op(
        self,
        type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        outputs: Sequence[str] = ("Out",),
        existing: Mapping[str, Any] | None = None,
    ) -> list[Variable]:
        """Append an op.

        Args:
            type: its name.
            inputs: slot -> variable, list of variables, or None for an absent slot.
            attrs: those that differ from the defaults.
            outputs: slots that get a new variable each, called `<name>.tmp_<i>`.
            existing: output slot -> variable(s) that are there already.

        Returns:
            The new variables, in the order of `outputs`.
        """
        names = {slot: self.program.unique(f"{self.name}.tmp") for slot in outputs}
        given = {slot: value for slot, value in inputs.items() if value is not None}
        self.block.append_op(type, given, {**names, **(existing or {})}, attrs)
        return [self.block.var(n) for n in names.values()]

    def one(
        self,
        type: str,
        inputs: Mapping[str, Any],
        attrs: Mapping[str, Any] | None = None,
        output: str = "Out",
    ) -> Variable:
        """Append an op with one new output and return that."""
        return self.op(type, inputs, attrs, (output,))[0]

    def activate(self, x: Variable, act: str | None) -> Variable:
        """Append an activation; None appends nothing.

        Raises:
            PeError: there is no activation of that name.
        """
        if act is None:
            return x
        if act not in (*activations(), *FURTHER_ACTIVATIONS):
            hint = did_you_mean(act, activations()) or f"one of {', '.join(activations())}"
            raise self.error(f"{self.layer_type}: there is no activation '{act}'", hint=hint)
        if act in _OF_LAYERS:
            from pe_cli.layers.define.registry import find

            made: Variable = find(act).fn(x)
            return made
        return self.one(act, {"X": x})

    def add_bias(self, x: Variable, attr: ParamAttr | bool | None, *, axis: int, end: int | None = None) -> Variable:
        """Append `x + bias`, where the bias has the sizes of x from axis up to end; `attr=False` appends nothing."""
        if attr is False:
            return x
        bias = self.parameter(attr, x.shape[axis:end], x.dtype, is_bias=True)
        return self.one("elementwise_add", {"X": x, "Y": bias}, {"axis": axis})

    # --- parameters --------------------------------------------------------------------------------------------------

    def parameter(
        self,
        attr: ParamAttr | bool | None,
        shape: Sequence[int],
        dtype: str,
        *,
        is_bias: bool = False,
        default: Initializer | None = None,
    ) -> Variable:
        """Return a parameter: new in the main program and initialised in the startup program, or shared by its name.

        With `WeightNormParamAttr` it is a weight that is computed of two.

        Args:
            attr: the user's wishes; None or True for defaults.
            shape: sizes, all known.
            dtype: element type.
            is_bias: is called `<name>.b_<i>` and starts at 0, instead of `<name>.w_<i>` and Xavier.
            default: initializer where the user gives none.

        Raises:
            PeError: a size that is not known, or a name that belongs to a variable of another kind or shape.
        """
        wishes = as_attr(attr)
        suffix = "b" if is_bias else "w"
        name = wishes.name or self.program.unique(f"{self.name}.{suffix}")
        kind = TensorType(tuple(int(s) for s in shape), dtype).computed  # what lives on between steps is never rounded
        dtype = kind.dtype
        if not kind.known or kind.size == 0:
            raise self.error(
                f"{self.layer_type}: parameter '{name}' would be {kind}",
                hint="give the input a shape that is known but for the batch axis",
            )
        if dtype not in FLOATS and not (wishes.initializer or FIRST_VALUES[suffix] or default or is_bias):
            raise WrongType(
                f"{self.layer_type}: parameter '{name}' would be {kind}, as its input is {dtype}",
                at=self.program.mark.at,
                hint="put a layer of type cast or embedding before it, or declare the feed with dtype: float32",
            )
        initializer = wishes.initializer or FIRST_VALUES[suffix] or default or (Constant(0.0) if is_bias else Xavier())
        if isinstance(wishes, WeightNormParamAttr):
            return weight_norm(self, wishes, name, kind, initializer)
        return self.create(wishes, name, kind, initializer)

    def create(self, wishes: ParamAttr, name: str, kind: TensorType, initializer: Initializer | None) -> Parameter:
        """Return the parameter of a name, made and initialised unless it is there.

        Args:
            wishes: facts about it, but its name and initializer.
            name: of the parameter.
            kind: its type.
            initializer: of its first value; None where the caller initialises it.

        Raises:
            PeError: the name belongs to a variable of another kind or shape.
        """
        block = self.block
        if name in block.vars:
            return self._shared(name, kind)
        facts: dict[str, Any] = {
            "trainable": wishes.trainable,
            "learning_rate": wishes.learning_rate,
            "regularizer": wishes.regularizer,
            "gradient_clip": wishes.gradient_clip,
            "do_model_average": wishes.do_model_average,
        }
        made = block.create_parameter(name, kind, stop_gradient=not wishes.trainable, **facts)
        if initializer is not None:
            self._initialize(made, initializer)
        return made

    def _initialize(self, made: Parameter, initializer: Initializer) -> None:
        """Append the initialiser to the startup program, unless another main program of it did."""
        start = self.startup.main_block
        found = start.vars.get(made.name)
        # Several main programs, such as those of training and evaluation, may share a startup program: the first one initialises.
        if found is None:
            initializer(made, start)
        elif found.type != made.type:
            raise self.error(
                f"{self.layer_type}: the startup program makes '{made.name}' {found.type}, but it is {made.type} here",
                hint="give one of them another name, or use another startup program",
            )

    def _shared(self, name: str, kind: TensorType) -> Parameter:
        found = self.block.vars[name]
        if not isinstance(found, Parameter):
            what = f"{self.layer_type}: '{name}' is a variable, not a parameter"
            raise self.error(what, hint="give the parameter another name")
        if found.type != kind:
            error = self.error(
                f"{self.layer_type}: parameter '{name}' is shared, but is {found.type} there and should be {kind} here",
                hint="give one of them another name, or make the shapes equal",
            )
            if found.at:
                error.notes.append((found.at, f"'{name}' is made here"))
            raise error
        return found

    # --- checks ------------------------------------------------------------------------------------------------------

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return an error at the place of this layer."""
        return PeError(message, at=self.program.mark.at, hint=hint)

    def check_rank(self, x: Variable, what: str, rank: int, axes: str) -> None:
        """Raise unless x has this many axes.

        Raises:
            PeError: says which axes are expected and what x is.
        """
        if len(x.shape) != rank:
            raise self.error(f"{self.layer_type}: {what} should be {axes}, got {x}", hint="reshape it")

    def check_same(self, x: Variable, *others: Variable) -> None:
        """Raise unless all have one shape and dtype: nothing is repeated along an axis.

        Raises:
            PeError: says what they are.
        """
        for other in others:
            sizes = len(x.shape) == len(other.shape) and all(-1 in (a, b) or a == b for a, b in zip(x.shape, other.shape, strict=True))
            if not sizes or x.dtype != other.dtype:
                raise self.error(f"{self.layer_type} needs inputs of one type, got {x} and {other}", hint="reshape or cast one of them")


def _unused(program: Program, layer_type: str) -> str:
    """Return `fc_0`, `fc_1`, ...: the first that is no variable's prefix."""
    taken = program.vars
    # A program that was read from a file has names that its counter does not know.
    while True:
        name = program.unique(layer_type)
        if not any(f"{name}.{part}_0" in taken for part in ("w", "b", "tmp")):
            return name


def as_attr(attr: Any) -> ParamAttr:
    """Return a ParamAttr for what users may write: None, True, a name, an initializer or a ParamAttr.

    Raises:
        WrongType: anything else.
    """
    if attr is None or attr is True:
        return ParamAttr()
    if isinstance(attr, ParamAttr):
        return attr
    if isinstance(attr, str):
        return ParamAttr(name=attr)
    if isinstance(attr, Initializer):
        return ParamAttr(initializer=attr)
    raise WrongType(f"a parameter attribute must be a ParamAttr, a name or an initializer, got {attr!r}")


def attr_for_each(attr: Any, count: int) -> list[Any]:
    """Return one parameter attribute for each of several inputs: a list as given, or one for all.

    Raises:
        PeError: a list of another length.
    """
    if isinstance(attr, (list, tuple)):
        if len(attr) != count:
            raise PeError(
                f"there are {count} inputs, but param_attr has {len(attr)} entries", hint="give one for each input"
            )
        return list(attr)
    return [copy.copy(attr) for _ in range(count)]


def as_list(value: Any) -> list[Any]:
    """Return a list or tuple as a list, anything else as a list of one."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def pair(layer_type: str, what: str, value: int | Sequence[int], least: int) -> list[int]:
    """Return [value, value] for a number and [height, width] for two.

    Raises:
        PeError: another count, or a number below least.
    """
    return several(layer_type, what, value, least, 2)


def several(layer_type: str, what: str, value: int | Sequence[int], least: int, count: int) -> list[int]:
    """Return a number for each of two or three axes: one number for all, or as many.

    Raises:
        PeError: another count, or a number below least.
    """
    numbers = [value] * count if isinstance(value, int) else list(value)
    if len(numbers) != count or any(not isinstance(v, int) or v < least for v in numbers):
        many = {2: "two", 3: "three"}[count]
        raise PeError(f"{layer_type}: {what} must be a number of at least {least}, or {many} of them, got {value!r}")
    return numbers
