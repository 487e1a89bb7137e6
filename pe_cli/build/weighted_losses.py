"""A loss of several terms: train.loss as a mapping."""

from __future__ import annotations

from collections.abc import Mapping

from pe_cli.config.sections.losses import Term
from pe_cli.config.spec import TOTAL_LOSS
from pe_cli.core.errors import Span
from pe_cli.optim.schedule import PolynomialDecay
from pe_cli.program.defaults import default_startup_program
from pe_cli.program.epoch_attributes import Epochs
from pe_cli.program.ir import Program, Variable


def append_total(
    program: Program, terms: Mapping[str, tuple[Variable, Term]], places: Mapping[str, Span | None], total: str = TOTAL_LOSS
) -> tuple[Variable, dict[str, str]]:
    """Append the weighted sum of some losses; a weight that ramps up is computed from the steps.

    Args:
        program: for training, with forward operators.
        terms: name as written -> variable, one number, and its weight.
        places: name as written -> where it stands.
        total: name of the sum.

    Returns:
        The sum, [1], and metric -> variable for weights that change.
    """
    block = program.main_block
    parts, recorded = [], {}
    for name, (variable, term) in terms.items():
        part = program.unique(f"{variable.name}@WEIGHTED")
        if term.ramp is None:
            block.append_op("scale", {"X": variable}, {"Out": part}, {"scale": term.weight}, at=variable.at)
        else:
            steps = Epochs(term.ramp.count, places.get(name)) if term.ramp.unit == "epoch" else term.ramp.count
            # A ramp is a polynomial decay that goes up, from 0 to the weight.
            ramp = PolynomialDecay(0.0, steps, term.weight)
            weight = ramp.append(program, default_startup_program(), variable.dtype)
            recorded[f"weight/{name}"] = weight.name
            block.append_op("elementwise_mul", {"X": variable, "Y": weight}, {"Out": part}, at=variable.at)
        parts.append(part)
    return _sum(program, parts, total), recorded


def append_final_total(program: Program, terms: Mapping[str, tuple[Variable, Term]], total: str = TOTAL_LOSS) -> None:
    """Append the sum to a program for evaluation, where weights that ramp up have their last value."""
    block = program.main_block
    parts = []
    # Evaluation has no steps to count, and losses of different epochs compare only with the same weights.
    for variable, term in terms.values():
        part = program.unique(f"{variable.name}@WEIGHTED")
        block.append_op("scale", {"X": variable.name}, {"Out": part}, {"scale": term.weight}, at=variable.at)
        parts.append(part)
    _sum(program, parts, total)


def _sum(program: Program, parts: list[str], total: str) -> Variable:
    block = program.main_block
    block.append_op("sum", {"X": parts}, {"Out": total})
    return block.var(total)
