"""Gradient accumulation: a step over a batch that is fed in parts, as two programs over the same variables."""

from __future__ import annotations

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import grad_name
from pe_cli.optim.optimizer import Pairs
from pe_cli.program.defaults import default_startup_program
from pe_cli.program.initializer import Constant
from pe_cli.program.ir import Program, Role, Variable

#: Feed of both programs, [1]: the part's share of the samples of the whole batch.
SHARE = "@SHARE_OF_BATCH@"


@dataclass(frozen=True)
class PartPrograms:
    """What a step does with all parts of its batch but the last.

    Args:
        program: adds up gradients and updates nothing.
        sums: variables that it adds them up in; 0 between steps.
    """

    program: Program
    sums: frozenset[str]


def add_up(pairs: Pairs, loss: Variable, startup: Program | None = None) -> tuple[PartPrograms, Pairs]:
    """Append what adds up the gradients of the parts of a batch, each weighed by its samples.

    Each device keeps its own sums of gradients, so that devices exchange them once a step, for the last part.

    Args:
        pairs: parameters and their gradients, of `Optimizer.backward`.
        loss: one number.
        startup: gets the first values; default: the default startup program.

    Returns:
        What runs for every part but the last, and the pairs for `Optimizer.apply_gradients`, which so sees the gradient of the
        whole batch: clipping, weight decay and schedules are those of one step.
    """
    startup = startup or default_startup_program()
    program = loss.block.program
    # Weighing the loss's gradient weighs all others, as they are linear in it.
    _weigh(loss)
    for op in program.top_ops:
        op.role_vars = []  # devices sum what has been added up, not the parts
    sums = _sums(pairs, startup)
    # A copy of the program so far: the optimizer's ops come behind, and only the last part has them.
    others = program.clone()
    others.name = f"{program.name}, all parts but the last"
    block = others.main_block
    with others.role(Role.BACKWARD), others.name_scope("accumulate"):
        for (parameter, gradient), kept in zip(pairs, sums, strict=True):
            names = {"X": [kept.name, gradient.name]}
            block.append_op("sum", names, {"Out": kept.name}, at=parameter.at)
    return PartPrograms(others, frozenset(v.name for v in sums)), _totals(pairs, sums)


def _weigh(loss: Variable) -> None:
    """Multiply the loss's gradient by the part's share, and with it all gradients."""
    block = loss.block
    program = block.program
    start = grad_name(loss.name)
    index = next(i for i, op in enumerate(block.ops) if op.role is Role.LOSS and start in op.output_names())
    share = block.create_var(SHARE, loss.type.with_shape(1), is_data=True, stop_gradient=True)
    weighed = program.unique(f"{start}@PART")
    with program.role(Role.BACKWARD), program.name_scope("accumulate"):
        block.append_op("scale_by", {"X": start, "Scale": share}, {"Out": weighed}, index=index + 1, at=loss.at)
    for op in block.ops[index + 2 :]:
        # Everything behind the weighing reads the weighed gradient; the op that made the first one stays as it is.
        op.inputs = {slot: [weighed if n == start else n for n in names] for slot, names in op.inputs.items()}


def _sums(pairs: Pairs, startup: Program) -> list[Variable]:
    """Make a variable for every gradient, 0 between steps."""
    made = []
    for parameter, gradient in pairs:
        block = parameter.block
        name = block.program.unique_own(f"{gradient.name}@ACCUMULATED")
        # It keeps its sum from part to part, so it lives in the scope, under a name of its own for each program.
        facts = {"persistable": True, "stop_gradient": True, "at": parameter.at}
        made.append(block.create_var(name, parameter.type, **facts))
        Constant(0.0)(made[-1], startup.main_block)
    return made


def _totals(pairs: Pairs, sums: list[Variable]) -> Pairs:
    """Append the last additions, and set the sums to 0 for the next step."""
    totals: Pairs = []
    for (parameter, gradient), kept in zip(pairs, sums, strict=True):
        block = parameter.block
        program = block.program
        total = program.unique(f"{gradient.name}@TOTAL")
        zero = {"shape": list(parameter.shape), "dtype": parameter.dtype, "value": 0.0}
        with program.name_scope("accumulate"):
            with program.role(Role.BACKWARD, [parameter.name, total]):
                block.append_op("sum", {"X": [kept.name, gradient.name]}, {"Out": total}, at=parameter.at)
            with program.role(Role.BACKWARD):
                # After the last part, so that the next step begins at 0 even if the process ends between the two.
                block.append_op("fill_constant", {}, {"Out": kept}, zero, at=parameter.at)
        totals.append((parameter, block.var(total)))
    return totals
