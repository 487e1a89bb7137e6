"""Muon: matrices step along an orthogonal matrix, everything else by AdamW."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import grad_name
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.decoupled_decay import AdamW
from pe_cli.optim.fields import Declared, decay, part
from pe_cli.optim.optimizer import Rate, State
from pe_cli.optim.regularizer import Regularizer
from pe_cli.optim.wrappers import looked_up
from pe_cli.program.ir import Block, Operator, Parameter, Program, Variable
from pe_cli.program.sparse import rows_of

#: a, b and c of X = a X + (b A + c A A) X with A = X X': singular values between 0 and 1 go to about 1 in few rounds.
QUINTIC = (3.4445, -4.7750, 2.0315)
#: What the learning rate of a matrix is multiplied by.
ADJUST = ("original", "match_rms_adamw", "none")


class Muon(Declared):
    """Step along the orthogonal matrix next to the momentum, for matrices; all other parameters go by `AdamW`.

    Matrices are parameters of two axes, [inputs, outputs], that are no tables of embeddings. The matrix next to the momentum is found by
    Newton-Schulz rounds, in the parameter's own type (torch rounds to bfloat16 there). One learning rate is for both; `train.groups` gives
    a part of the model another.

    Args:
        momentum: part of the velocity that stays each step, in [0, 1).
        nesterov: look one step ahead.
        weight_decay: part of the parameter that goes each step, times the learning rate; at least 0, no unit.
        ns_steps: Newton-Schulz rounds, 1 to 99.
        adjust_lr: what a matrix's learning rate is multiplied by: `original`, sqrt(max(1, outputs / inputs)); `match_rms_adamw`,
            0.2 sqrt(max(inputs, outputs)), with which a rate that suits AdamW suits both; `none`.
        beta1, beta2, epsilon: those of `AdamW`, for the others.

    Source:
        Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; torch.optim.Muon.

    Raises:
        PeError: ns_steps is not in [1, 99], or adjust_lr is no known rule.
    """

    op = "sgdw"
    decay_attr = "weight_decay"
    keeps = (State("Velocity", "velocity"),)

    learning_rate: Rate = 0.001
    momentum: float = part(default=0.95)
    nesterov: bool = True
    weight_decay: float = decay(default=0.1)
    ns_steps: int = 5
    adjust_lr: str = "original"
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None

    def _begin(self) -> None:
        """Check the rounds and the rule, and make the optimizer of the other parameters."""
        if not 1 <= self.ns_steps < 100:
            raise PeError(f"Muon: ns_steps must be in [1, 99], got {self.ns_steps}")
        if self.adjust_lr not in ADJUST:
            raise PeError(f"Muon: adjust_lr must be one of {', '.join(ADJUST)}, got {self.adjust_lr}")
        # Made at once, so that mistakes in its numbers are told when the optimizer is made.
        self.others = AdamW(self.learning_rate, self.beta1, self.beta2, self.epsilon, self.weight_decay, name=self.name)

    def state(self, slot: str, parameter: Parameter) -> Variable:
        """Return the velocity of a matrix, or what `AdamW` keeps."""
        return super().state(slot, parameter) if slot == "Velocity" else self.others.state(slot, parameter)

    def _update(self, parameter: Parameter, gradient: Variable, rate: Variable | None, startup: Program) -> Operator:
        block = parameter.block
        if rows_of(block, gradient.name) is not None:
            self._check_rows(parameter)
        # A table is looked up row by row: making its gradient orthogonal would mix rows that a batch does not touch.
        if len(parameter.shape) != 2 or parameter.name in looked_up(block.program):
            return self.others._update(parameter, gradient, rate, startup)
        step = _Matrix(block, parameter).direction(self, gradient, self._state(self.states()[0], parameter, startup))
        inputs: dict[str, Variable | str] = {"Param": parameter, "Grad": step}
        if rate is not None:
            inputs["LearningRate"] = rate
        return block.append_op("sgdw", inputs, {"ParamOut": parameter}, {"weight_decay": self.decay_of(parameter)}, at=parameter.at)

    def factor(self, parameter: Parameter) -> float:
        """Return the factor of the learning rate of a matrix."""
        inputs, outputs = parameter.shape
        if self.adjust_lr == "original":
            return math.sqrt(max(1.0, outputs / inputs)) if inputs else 1.0
        return 0.2 * math.sqrt(max(inputs, outputs)) if self.adjust_lr == "match_rms_adamw" else 1.0


class _Matrix:
    """Appends what makes a gradient orthogonal; products of X and X' are taken on its shorter side."""

    def __init__(self, block: Block, parameter: Parameter) -> None:
        self.block, self.parameter = block, parameter
        # The product of the shorter side is the smaller matrix.
        self.wide = parameter.shape[0] <= parameter.shape[1]

    def add(self, op: str, inputs: Mapping[str, Variable | str], attrs: Mapping[str, Any], **outputs: Variable) -> str:
        made = self.block.program.unique(f"{grad_name(self.parameter.name)}@MUON")
        self.block.append_op(op, dict(inputs), {"Out": made, **outputs}, dict(attrs), at=self.parameter.at)
        return made

    def direction(self, muon: Muon, gradient: Variable, velocity: Variable) -> str:
        attrs = {"mu": float(muon.momentum), "use_nesterov": muon.nesterov}
        x = self.add("muon_direction", {"Grad": gradient, "Velocity": velocity}, attrs, VelocityOut=velocity)
        for _ in range(muon.ns_steps):
            x = self.round(x)
        # One op less where the factor is 1.
        factor = muon.factor(self.parameter)
        return x if factor == 1.0 else self.add("scale", {"X": x}, {"scale": factor})

    def round(self, x: str) -> str:
        """Return a X + (b A + c A A) X with A = X X', or the same from the right with A = X' X."""
        a, b, c = QUINTIC
        # Scaled inside of the products, where that costs no pass over memory.
        gram = self.add("matmul", {"X": x, "Y": x}, {"transpose_Y" if self.wide else "transpose_X": True})
        once = self.add("scale", {"X": gram}, {"scale": b})
        twice = self.add("matmul", {"X": gram, "Y": gram}, {"alpha": c})
        both = self.add("elementwise_add", {"X": once, "Y": twice}, {})
        turned = self.add("matmul", {"X": both, "Y": x} if self.wide else {"X": x, "Y": both}, {})
        kept = self.add("scale", {"X": x}, {"scale": a})
        return self.add("elementwise_add", {"X": kept, "Y": turned}, {})
