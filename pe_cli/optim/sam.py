"""Sharpness-aware minimization (SAM): the gradient of a step is taken a little uphill of the parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from pe_cli.core.errors import PeError
from pe_cli.optim.optimizer import Optimizer, Pairs
from pe_cli.optim.wrappers import OptimizerWrapper
from pe_cli.program.backward import gradients, mark_role_vars
from pe_cli.program.ir import EMPTY, Block, Operator, Program, Role, Variable
from pe_cli.program.sparse import rows_of

#: Added to the length of the gradient, which may be 0.
EPSILON = 1e-12


class SAM(OptimizerWrapper):
    """Go rho uphill along the gradient of all parameters, take the gradient there, and step with it from where the parameters were.

    A step computes forward and backward twice, on the same batch. What is fetched is of the first time; statistics of batch_norm move
    once, and what no parameter decides is computed once. Dropout draws anew for the second time.

    Args:
        inner: the other optimizer; learning rate, clipping and weight decay are its own.
        rho: how far uphill, above 0, length of all parameters taken as one vector.

    Source:
        Foret et al. 2021, "Sharpness-Aware Minimization for Efficiently Improving Generalization", algorithm 1.

    Raises:
        PeError: rho is not above 0.
    """

    def __init__(self, inner: Optimizer, rho: float = 0.05, name: str | None = None) -> None:
        super().__init__(inner, name)
        if not (rho > 0 and math.isfinite(rho)):
            raise PeError(f"SAM: rho must be > 0, got {rho}")
        self.rho = rho

    @property
    def evaluations(self) -> int:
        """How often a step computes a gradient."""
        return 2 * self.inner.evaluations

    def backward(
        self,
        loss: Variable,
        parameter_list: Sequence[str | Variable] | None = None,
        no_grad_set: Collection[str | Variable] | None = None,
    ) -> Pairs:
        """Append both gradients, and return the second one.

        Raises:
            PeError: a gradient is row-sparse.
        """
        block = loss.block
        # The forward ops as they are now: the walk appends gradients behind them.
        forward = [op for op in block.ops if op.role is Role.FORWARD]
        pairs = super().backward(loss, parameter_list, no_grad_set)
        for parameter, gradient in pairs:
            if rows_of(block, gradient.name) is not None:
                text = f"SAM takes gradients of all rows, and that of '{parameter.name}' is row-sparse"
                # The step uphill moves every row of every parameter, and a row-sparse gradient has only some.
                raise PeError(text, at=parameter.at, hint="set is_sparse: false at its embedding")
        moved = self._uphill(block, pairs)
        again = _Again(block, moved)
        again.run(forward, loss.name)
        if loss.name not in again.names:
            raise PeError(f"SAM: the loss '{loss.name}' is computed in no forward op", at=loss.at)
        reached = [(p, block.var(moved[p.name])) for p, _ in pairs]
        closed = {v if isinstance(v, str) else v.name for v in no_grad_set or ()}
        cut = closed | {again.names[n] for n in closed if n in again.names}
        # The second gradient starts from the loss of the moved parameters, scaled by each device's share like the first.
        found = gradients([block.var(again.names[loss.name])], [v for _, v in reached], no_grad_set=cut, shares=True)
        made: Pairs = [(p, g) for (p, _), g in zip(reached, found, strict=True) if g is not None]
        # Devices sum the second gradient alone; the first one has given its direction already.
        mark_role_vars(block.program, made)
        return made

    def apply_gradients(self, pairs: Pairs, startup_program: Program | None = None) -> list[Operator]:
        """Append the other optimizer's step."""
        return self.inner.apply_gradients(pairs, startup_program)

    def _uphill(self, block: Block, pairs: Pairs) -> dict[str, str]:
        """Append parameters that are moved, and return their names; the parameters stay."""
        program = block.program
        squares: dict[str, list[str]] = {}
        moved = {}
        with program.name_scope("sharpness"):
            for p, g in pairs:
                with program.role(Role.OPTIMIZE, [p.name, g.name]):
                    squares.setdefault(p.dtype, []).append(program.unique(f"{p.name}@SQUARE"))
                    block.append_op("squared_l2_norm", {"X": g}, {"Out": squares[p.dtype][-1]}, at=p.at)
            # One factor is applied to all gradients, and a factor has one element type.
            if len(squares) > 1:
                raise PeError(f"SAM needs parameters of one element type, and here are {' and '.join(squares)}")
            with program.role(Role.OPTIMIZE):
                names = [program.unique(f"sharpness_{what}") for what in ("square", "length", "kept", "inverse", "factor")]
                (parts,) = squares.values()
                block.append_op("sum", {"X": parts}, {"Out": names[0]})
                block.append_op("sqrt", {"X": names[0]}, {"Out": names[1]})
                block.append_op("scale", {"X": names[1]}, {"Out": names[2]}, {"scale": 1.0, "bias": EPSILON})
                block.append_op("reciprocal", {"X": names[2]}, {"Out": names[3]})
                block.append_op("scale", {"X": names[3]}, {"Out": names[4]}, {"scale": float(self.rho)})
            for p, g in pairs:
                step, moved[p.name] = program.unique(f"{p.name}@UPHILL"), program.unique(f"{p.name}@MOVED")
                with program.role(Role.OPTIMIZE, [p.name, g.name]):
                    block.append_op("scale_by", {"X": g, "Scale": names[4]}, {"Out": step}, at=p.at)
                    block.append_op("elementwise_add", {"X": p, "Y": step}, {"Out": moved[p.name]}, at=p.at)
        return moved


class _Again:
    """Appends forward ops once more, for other parameters.

    Args:
        block: gets the ops.
        names: parameter -> what is read instead; grows by everything that is computed again.
    """

    def __init__(self, block: Block, names: dict[str, str]) -> None:
        self.block = block
        self.names = dict(names)

    def run(self, ops: Sequence[Operator], loss: str) -> None:
        """Append what the loss needs of the ops that depend on the parameters."""
        needed, wanted = {loss}, []
        for op in reversed(ops):
            if needed & set(op.output_names()):
                wanted.append(op)
                needed |= set(op.input_names())
        for op in reversed(wanted):
            # Ops that depend on no parameter, such as those that prepare the data, give the same again and are not repeated.
            if any(name in self.names for name in op.input_names()):
                self._append(op)

    def _append(self, op: Operator) -> None:
        program = self.block.program
        read = {slot: [self.names.get(n, n) for n in names] for slot, names in op.inputs.items()}
        # Running statistics are written once a step: the second pass writes to variables that nobody keeps.
        fresh = {n: program.unique(f"{n}@AGAIN") for n in dict.fromkeys(op.output_names())}
        written = {slot: [fresh.get(n, EMPTY) for n in names] for slot, names in op.outputs.items()}
        with program.role(Role.FORWARD), program.marked(scope=op.scope):
            self.block.append_op(op.type, read, written, dict(op.attrs), at=op.at)
        for name, made in fresh.items():
            self.block.var(made).stop_gradient = self.block.var(name).stop_gradient
        self.names |= fresh
