"""The weight that `WeightNormParamAttr` asks for: two parameters, and the op that makes it of them."""

from __future__ import annotations

from typing import Protocol

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.nn.weight_norm import lengths_shape
from pe_cli.program.initializer import Constant, Initializer, declare
from pe_cli.program.ir import Block, Parameter, Program, Variable
from pe_cli.program.param_attr import ParamAttr, WeightNormParamAttr


class Maker(Protocol):
    """What makes the parameters of a layer: its `LayerHelper`."""

    layer_type: str

    @property
    def block(self) -> Block:
        """Of the main program."""

    @property
    def startup(self) -> Program:
        """The startup program."""

    def error(self, message: str, hint: str | None = None) -> PeError:
        """Return an error at the layer's place."""

    def create(self, wishes: ParamAttr, name: str, kind: TensorType, initializer: Initializer | None) -> Parameter:
        """Return the parameter of a name, made and initialised unless it is there."""


def weight_norm(
    helper: Maker, wishes: WeightNormParamAttr, name: str, kind: TensorType, initializer: Initializer
) -> Variable:
    """Return the weight of a name, computed of `<name>_v` and `<name>_g`; one that is there is shared.

    Args:
        helper: of the layer.
        wishes: for both parameters.
        name: of the weight.
        kind: its type.
        initializer: of the weight's first value.

    Raises:
        PeError: there is no such axis, the first value has no direction, or the name belongs to something else.
    """
    dim = (
        -1 if wishes.dim is None else wishes.dim % len(kind.shape) if -len(kind.shape) <= wishes.dim < 0 else wishes.dim
    )
    if wishes.dim is not None and not 0 <= dim < len(kind.shape):
        last = len(kind.shape) - 1
        hint = f"0 to {last}, or null for one length"
        raise helper.error(f"{helper.layer_type}: weight_norm has no dim {wishes.dim}, '{name}' is {kind}", hint=hint)
    if isinstance(initializer, Constant) and initializer.value == 0:
        what = f"{helper.layer_type}: '{name}' starts at 0, which has no direction for weight_norm"
        raise helper.error(what, hint="give it another initializer, or no weight_norm")
    block = helper.block
    if name in block.vars:
        return _shared(helper, wishes, name, kind, dim)
    lengths = helper.create(wishes, f"{name}_g", kind.with_shape(*lengths_shape(kind.shape, dim)), None)
    directions = helper.create(wishes, f"{name}_v", kind, initializer)
    start = helper.startup.main_block
    # The lengths begin as those of the drawn directions, so that the weight begins as the initializer says.
    if lengths.name not in start.vars:
        declare(lengths, start)
        start.append_op("norm_except_dim", {"X": directions.name}, {"Out": lengths.name}, {"dim": dim}, at=lengths.at)
    block.append_op("weight_norm", {"V": directions, "G": lengths}, {"W": name}, {"dim": dim})
    return block.vars[name]


def _shared(helper: Maker, wishes: WeightNormParamAttr, name: str, kind: TensorType, dim: int) -> Variable:
    maker = next((op for op in helper.block.ops if name in op.output_names()), None)
    found = helper.block.vars[name]
    if maker is None or maker.type != "weight_norm" or maker.attrs["dim"] != dim or found.type != kind:
        what = f"{helper.layer_type}: '{name}' is no weight {kind} with weight_norm and dim {wishes.dim}, but {found}"
        raise helper.error(what, hint="give one of them another name")
    return found
