"""Optimizer wrappers: they change the gradients or the steps of another optimizer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import grad_name
from pe_cli.ops.define.traits import Table
from pe_cli.optim.optimizer import Optimizer, Pairs
from pe_cli.program.ir import Operator, Parameter, Program, Role, Variable
from pe_cli.program.region import every_op
from pe_cli.program.sparse import rows_of


class OptimizerWrapper(Optimizer):
    """Base of the optimizers around another.

    Args:
        inner: the other optimizer; learning rate, clipping and weight decay are its own.
        name: prefix of the variables that this makes; default: none.

    Raises:
        PeError: inner is no optimizer.
    """

    def __init__(self, inner: Optimizer, name: str | None = None) -> None:
        if not isinstance(inner, Optimizer):
            raise PeError(f"{type(self).__name__}: inner must be an optimizer, got {inner!r}", hint="for example {type: Adam}")
        # It has the inner rate, so that whoever asks for the learning rate need not know about wrappers.
        super().__init__(inner.learning_rate, inner.regularization, inner.grad_clip, name)
        self.inner = inner

    def backward(
        self,
        loss: Variable,
        parameter_list: Sequence[str | Variable] | None = None,
        no_grad_set: Collection[str | Variable] | None = None,
    ) -> Pairs:
        """Append the other optimizer's."""
        return self.inner.backward(loss, parameter_list, no_grad_set)

    @property
    def evaluations(self) -> int:
        """The other optimizer's."""
        return self.inner.evaluations

    def decay_of(self, parameter: Parameter) -> float:
        """Return the other optimizer's."""
        return self.inner.decay_of(parameter)

    def rate(self, program: Program) -> Variable | None:
        """Return the other optimizer's."""
        return self.inner.rate(program)

    def follows(self) -> Sequence[str]:
        """Return the other optimizer's."""
        return self.inner.follows()

    def state(self, slot: str, parameter: Parameter) -> Variable:
        """Return what this keeps in a slot, or what the other optimizer does."""
        own = slot in {s.slot for s in self.states()}
        return super().state(slot, parameter) if own else self.inner.state(slot, parameter)


class GradientCentralization(OptimizerWrapper):
    """Take from the gradient of every weight its mean over the inputs of each output, and go on with another optimizer.

    A weight of two axes has its outputs on the last one, one of more axes (a filter) on the first. Gradients of vectors, of numbers
    and of tables of embeddings stay as they are.

    Args:
        inner: the other optimizer; learning rate, clipping and weight decay are its own.

    Source:
        Yong et al. 2020, "Gradient Centralization", eq. 1.
    """

    def __init__(self, inner: Optimizer, name: str | None = None) -> None:
        super().__init__(inner, name)

    def apply_gradients(self, pairs: Pairs, startup_program: Program | None = None) -> list[Operator]:
        """Append the centred gradients, and what the other optimizer does with them: clipping comes after."""
        tables = looked_up(pairs[0][0].block.program) if pairs else set()
        # Clipping comes after, inside of the other optimizer, and so clips the centred gradient.
        ready = [(p, _centred(p, g) if _is_weight(p, g, tables) else g) for p, g in pairs]
        return self.inner.apply_gradients(ready, startup_program)


def looked_up(program: Program) -> set[str]:
    """Return the names of the variables that ops take rows of."""
    lookups = [(op, op.definition.get(Table)) for op in every_op(program)]
    # In regions, too: a table may be looked up inside of a loop.
    return {name for op, lookup in lookups if lookup is not None for name in op.inputs[lookup.table]}


def _is_weight(parameter: Parameter, gradient: Variable, tables: set[str]) -> bool:
    """Whether each output of a parameter has several inputs."""
    row_sparse = rows_of(parameter.block, gradient.name) is not None
    return len(parameter.shape) > 1 and parameter.name not in tables and not row_sparse


def _centred(parameter: Parameter, gradient: Variable) -> Variable:
    """Append the mean of a gradient over the inputs of each output, and the difference."""
    block = parameter.block
    program, rank = block.program, len(parameter.shape)
    # A matrix has its outputs along axis 1, the kernel of a convolution along axis 0.
    over, axis = ([0], -1) if rank == 2 else (list(range(1, rank)), 0)
    mean, made = (program.unique(f"{grad_name(parameter.name)}@{what}") for what in ("MEAN", "CENTRED"))
    with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]), program.name_scope("gradient_centralization"):
        block.append_op("reduce_mean", {"X": gradient}, {"Out": mean}, {"dim": over}, at=parameter.at)
        block.append_op("elementwise_sub", {"X": gradient, "Y": mean}, {"Out": made}, {"axis": axis}, at=parameter.at)
    return block.var(made)
