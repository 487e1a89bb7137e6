"""Gradient norms as variables of the program, for observation alone."""

from __future__ import annotations

from pe_cli.ops.define.registry import grad_name
from pe_cli.optim.clip import Pairs
from pe_cli.program.ir import Role, Variable


def gradient_norms(pairs: Pairs) -> tuple[Variable, Variable]:
    """Append the lengths sqrt(sum g^2) of gradients, as they are after the sum over devices.

    Args:
        pairs: (parameter, gradient), at least one; lengths are computed in the first one's element type.

    Returns:
        The length of all together, [1]; and of each, [pairs]. In the unit of the gradients.
    """
    block = pairs[0][0].block
    program = block.program
    dtype = pairs[0][1].dtype
    squares = []
    with program.name_scope("gradient_norms"):
        for parameter, gradient in pairs:
            # With the role of the parameter, so that with Reduce only the device that has the whole gradient takes its length.
            with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
                name = program.unique(f"{grad_name(parameter.name)}@LENGTH")
                block.append_op("squared_l2_norm", {"X": gradient}, {"Out": name}, at=parameter.at)
                # One sum over all needs one element type.
                if gradient.dtype != dtype:
                    block.append_op("cast", {"X": name}, {"Out": f"{name}@CAST"}, {"out_dtype": dtype}, at=parameter.at)
                    name = f"{name}@CAST"
                squares.append(name)
        found = []
        with program.role(Role.OPTIMIZE):
            for made, op in (("gradient_norm", "sum"), ("gradient_norms", "concat")):
                joined, out = program.unique(f"{made}@SQUARES"), program.unique_own(made)
                block.append_op(op, {"X": squares}, {"Out": joined}, at=pairs[0][0].at)
                block.append_op("sqrt", {"X": joined}, {"Out": out}, at=pairs[0][0].at)
                found.append(block.var(out))
    return found[0], found[1]
