"""Gradient clipping, before weight decay: by value, by each gradient's length, or by the length of all together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.ops.define.registry import grad_name
from pe_cli.program.defaults import default_main_program
from pe_cli.program.ir import Parameter, Program, Role, Variable
from pe_cli.program.json_values import portable

Pairs = list[tuple[Parameter, Variable]]


class GradientClip:
    """Base of the ways to clip."""

    def applies_to(self, parameter: Parameter) -> bool:
        """Return whether the gradient of a parameter is clipped."""
        del parameter
        return True

    def append(self, parameter: Parameter, gradient: Variable) -> Variable:
        """Append the ops for one gradient and return the new one."""
        raise NotImplementedError


@portable
@dataclass(frozen=True)
class GradientClipByValue(GradientClip):
    """Clip every element to [min, max].

    Args:
        max: largest element, unit of the gradient.
        min: smallest element; default: -max.

    Raises:
        PeError: min is above max.
    """

    max: float
    min: float | None = None

    def __post_init__(self) -> None:
        if self.min is None:
            object.__setattr__(self, "min", -self.max)
        assert self.min is not None
        if not self.min <= self.max:
            raise PeError(f"GradientClipByValue needs min <= max, got min {self.min} and max {self.max}")

    def append(self, parameter: Parameter, gradient: Variable) -> Variable:
        """Append `clip`."""
        assert self.min is not None
        return _one(parameter, "clip", {"X": gradient}, {"min": float(self.min), "max": float(self.max)})


@portable
@dataclass(frozen=True)
class GradientClipByNorm(GradientClip):
    """Shorten a gradient whose length sqrt(sum g^2) is above clip_norm to that length.

    Args:
        clip_norm: above 0, unit of the gradient.

    Raises:
        PeError: clip_norm is not above 0.
    """

    clip_norm: float

    def __post_init__(self) -> None:
        _check_norm(self, self.clip_norm)

    def append(self, parameter: Parameter, gradient: Variable) -> Variable:
        """Append `clip_by_norm`."""
        return _one(parameter, "clip_by_norm", {"X": gradient}, {"max_norm": float(self.clip_norm)})


@portable
@dataclass(frozen=True)
class GradientClipByGlobalNorm(GradientClip):
    """Shorten all gradients of a group by one factor, so that together they have at most length clip_norm.

    Args:
        clip_norm: above 0, unit of the gradients.
        group_name: parameters with one name form a group.

    Raises:
        PeError: clip_norm is not above 0.
    """

    clip_norm: float
    group_name: str = "default_group"

    def __post_init__(self) -> None:
        _check_norm(self, self.clip_norm)


def _check_norm(clip: GradientClip, norm: float) -> None:
    if not norm > 0:
        raise PeError(f"{type(clip).__name__}: clip_norm must be > 0, got {norm}")


def _one(parameter: Parameter, op: str, inputs: dict[str, Variable], attrs: dict[str, float]) -> Variable:
    block = parameter.block
    # Past the dataclass's frozen `__setattr__`: the default of one bound is the other.
    name = block.program.unique(f"{grad_name(parameter.name)}@CLIP")
    block.append_op(op, inputs, {"Out": name}, attrs, at=parameter.at)
    return block.var(name)


def clip_gradients(pairs: Sequence[tuple[Parameter, Variable]], common: GradientClip | None) -> Pairs:
    """Append the clipping of every gradient that is clipped.

    Args:
        pairs: (parameter, gradient).
        common: of parameters without their own; a parameter's own goes first.

    Returns:
        The pairs with the new gradients.

    Raises:
        PeError: members of a group have different limits.
    """
    # Groups are clipped last, when all of their members are known; the order of the pairs stays.
    out = list(pairs)
    groups: dict[str, list[int]] = {}
    limits: dict[str, float] = {}
    for i, (parameter, gradient) in enumerate(pairs):
        clip = parameter.gradient_clip or common
        if clip is None or not clip.applies_to(parameter):
            continue
        if isinstance(clip, GradientClipByGlobalNorm):
            # The first member sets the group's limit, and others must agree.
            limit = limits.setdefault(clip.group_name, clip.clip_norm)
            if limit != clip.clip_norm:
                raise PeError(
                    f"gradients of group '{clip.group_name}' have different clip_norm: {limit} and {clip.clip_norm}",
                    at=parameter.at,
                    hint="give one of them another group_name",
                )
            groups.setdefault(clip.group_name, []).append(i)
        else:
            program = parameter.block.program
            with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]), program.name_scope("gradient_clip"):
                out[i] = parameter, clip.append(parameter, gradient)
    for name, members in groups.items():
        clipped = _clip_group([pairs[i] for i in members], limits[name])
        for i, pair in zip(members, clipped, strict=True):
            out[i] = pair
    return out


def _clip_group(pairs: Pairs, clip_norm: float) -> Pairs:
    """Append the clipping of one group: squares of each gradient, their sum, one factor, and a product for each."""
    block = pairs[0][0].block
    program = block.program
    squares = []
    with program.name_scope("gradient_clip"):
        # Squares have the role of their own parameter, so that a process that owns it computes them; the sum needs all.
        for parameter, gradient in pairs:
            with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
                squares.append(program.unique(f"{grad_name(parameter.name)}@SQUARES"))
                block.append_op("squared_l2_norm", {"X": gradient}, {"Out": squares[-1]}, at=parameter.at)
        total, factor = program.unique("gradient_squares"), program.unique("gradient_scale")
        at = pairs[0][0].at
        # Without role variables: the factor belongs to no single parameter, and every device computes the same.
        with program.role(Role.OPTIMIZE):
            block.append_op("sum", {"X": squares}, {"Out": total}, at=at)
            block.append_op("global_norm_scale", {"X": total}, {"Out": factor}, {"clip_norm": float(clip_norm)}, at=at)
        out = []
        for parameter, gradient in pairs:
            with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
                out.append((parameter, _one(parameter, "scale_by", {"X": gradient, "Scale": block.var(factor)}, {})))
    return out


def set_gradient_clip(
    clip: GradientClip, param_list: Sequence[Parameter | str] | None = None, program: Program | None = None
) -> None:
    """Give parameters their own clipping.

    Args:
        clip: how.
        param_list: parameters or their names; default: all of the program's.
        program: default: the default main program.

    Raises:
        PeError: a name is no parameter's.
    """
    program = program or default_main_program()
    chosen = (
        program.parameters() if param_list is None else [program.var(p) if isinstance(p, str) else p for p in param_list]
    )
    for parameter in chosen:
        if not isinstance(parameter, Parameter):
            raise PeError(f"'{parameter.name}' is a variable, not a parameter: its gradient is not clipped")
        parameter.gradient_clip = clip


#: Ways to clip by the type that a config names; keyword arguments only.
CLIPS: dict[str, Callable[..., GradientClip]] = {
    "GradientClipByValue": GradientClipByValue,
    "GradientClipByNorm": GradientClipByNorm,
    "GradientClipByGlobalNorm": GradientClipByGlobalNorm,
}
