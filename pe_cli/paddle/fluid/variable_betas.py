"""Adam with decay rates that are variables: composed of ordinary ops, as the op `adam` has fixed rates."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import NotThereYet
from pe_cli.program.ir import Operator, Variable
from pe_cli.program.sparse import rows_of

#: What the powers of the decays begin with where the decays are variables, as in the original.
FIRST = {"beta1": 0.9, "beta2": 0.999}


def step(
    parameter: Any, gradient: Variable, rate: Variable, states: dict[str, Variable], betas: dict[str, Variable], epsilon: float
) -> Operator:
    """Append one step of Adam.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; parameter -= rate sqrt(1 - p2) / (1 - p1) m / (sqrt(v) + epsilon); p1 *= b1; p2 *= b2

    Args:
        parameter: any shape.
        gradient: type of the parameter.
        rate: [1].
        states: Moment1, Moment2, of the parameter's type; Beta1Pow, Beta2Pow, [1].
        betas: beta1, beta2: [1] of the parameter's element type.
        epsilon: unit of the gradient.

    Returns:
        The op that writes the parameter.

    Raises:
        NotThereYet: a row-sparse gradient.
    """
    if rows_of(parameter.block, gradient.name) is not None:
        raise NotThereYet("Adam with variable decays takes whole gradients", hint="leave is_sparse out, or give the decays as numbers")
    helper = LayerHelper("adam")

    def both(op: str, x: Variable, y: Variable, out: Variable | None = None) -> Variable:
        if out is None:
            return helper.one(op, {"X": x, "Y": y}, {"axis": -1})
        helper.op(op, {"X": x, "Y": y}, {"axis": -1}, (), {"Out": out})
        return out

    def rest(x: Variable) -> Variable:
        return helper.one("scale", {"X": x}, {"scale": -1.0, "bias": 1.0})

    def one(op: str, x: Variable, **attrs: float) -> Variable:
        return helper.one(op, {"X": x}, attrs)

    moments = {}
    for slot, beta, now in (("Moment1", betas["beta1"], gradient), ("Moment2", betas["beta2"], one("square", gradient))):
        kept, new = both("elementwise_mul", states[slot], beta), both("elementwise_mul", now, rest(beta))
        moments[slot] = both("elementwise_add", kept, new, states[slot])
    length = both("elementwise_div", one("sqrt", rest(states["Beta2Pow"])), rest(states["Beta1Pow"]))
    # Epsilon is added to the root that is not corrected, as in the original; algorithm 1 of the paper adds it after the correction.
    way = both("elementwise_div", moments["Moment1"], one("scale", one("sqrt", moments["Moment2"]), scale=1.0, bias=float(epsilon)))
    both("elementwise_sub", parameter, both("elementwise_mul", way, both("elementwise_mul", length, rate)), parameter)
    made: Operator = parameter.block.ops[-1]
    # Last: the step above needs the powers as the step before left them.
    for slot, name in (("Beta1Pow", "beta1"), ("Beta2Pow", "beta2")):
        both("elementwise_mul", states[slot], betas[name], states[slot])
    return made
