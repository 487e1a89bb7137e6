"""`train.adapt`: adds a few new parameters beside those of a model, and trains only the new ones."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.build.insertion import Insertion
from pe_cli.build.low_rank import LowRank, beside, why_not
from pe_cli.build.parameter_patterns import Matching, fits
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.adapt import AdaptSection, listed
from pe_cli.core.errors import did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.patterns import nearest
from pe_cli.core.types import FLOATS
from pe_cli.layers.define.helper import LayerHelper, activations
from pe_cli.ops.define.traits import PassesGradient, Weight
from pe_cli.program.initializer import Constant, Initializer, Normal
from pe_cli.program.ir import Operator, Parameter, Program, Variable
from pe_cli.program.param_attr import ParamAttr

_WHERE = "train.adapt.targets"
#: Deviation of the first values of the small networks, of which the second part begins with 0 (Houlsby et al. 2019, section 3.6).
_DEVIATION = 0.01


@dataclass(frozen=True)
class Adapted:
    """What `train.adapt` has done to a program.

    Args:
        type: lora, dora, adapter or bitfit.
        new: names of the parameters that it has added.
        weights: those with small matrices beside them.
        left: parameters that a pattern fits and that have none -> why.
    """

    type: str
    new: tuple[str, ...]
    weights: tuple[LowRank, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


def adapt(program: Program, section: AdaptSection, mistakes: Mistakes) -> Adapted | None:
    """Rewrite a program of forward ops, the default one, and freeze what it had.

    Args:
        program: changed.
        section: as written.
        mistakes: get patterns that no name fits, and targets that cannot be adapted.

    Returns:
        What was done; None where something is wrong.
    """
    matching, before, wrong = Matching(program), program.parameters(), mistakes.total
    weights: list[LowRank] = []
    left: list[tuple[str, str]] = []
    trained: list[Parameter] = []
    with mistakes.catch():
        if section.type == "bitfit":
            trained += _biases(matching, section, mistakes)
        elif section.type == "adapter":
            _networks(program, section, mistakes)
        else:
            found = _weights(matching, section, left, mistakes)
            weights += [beside(program, weight, matching.readers[weight.name], section) for weight in found]
    for pattern in listed(section.also or []):
        trained += matching.find(pattern, "train.adapt.also", mistakes, section.at_of("also"))
    # What `also` names is not frozen below.
    kept = {p.name for p in trained}
    for parameter in before:
        parameter.trainable = parameter.trainable and parameter.name in kept
    known = {p.name for p in before}
    new = tuple(p.name for p in program.parameters() if p.name not in known)
    return None if mistakes.total > wrong else Adapted(section.type, new, tuple(weights), tuple(left))


def _weights(matching: Matching, section: AdaptSection, left: list[tuple[str, str]], mistakes: Mistakes) -> list[Parameter]:
    """Return the weights that patterns fit and that matrices can stand beside; a pattern with none is a mistake."""
    found: dict[str, Parameter] = {}
    at = section.at_of("targets")
    for pattern in listed(section.targets or []):
        members = matching.find(pattern, _WHERE, mistakes, at)
        reasons = {p.name: why_not(p, matching.readers[p.name], section.type) for p in members}
        found |= {p.name: p for p in members if reasons[p.name] is None}
        # A pattern such as `*` also meets biases; only matrices and larger that cannot be adapted are worth telling.
        left += [(name, why) for name, why in reasons.items() if why is not None and len(matching.parameters[name].shape) > 1]
        if members and None not in reasons.values():
            name, why = max(reasons.items(), key=lambda item: len(matching.parameters[item[0]].shape))
            text = f"{_WHERE}: '{pattern}' fits no weight that {section.type} can adapt: '{name}': {why}"
            mistakes.say(text, at, "name layers such as fc, conv2d or embedding; pe summary shows the parameters")
    return list(found.values())


def _biases(matching: Matching, section: AdaptSection, mistakes: Mistakes) -> list[Parameter]:
    """Return the biases among what patterns fit."""
    found: dict[str, Parameter] = {}
    for pattern in listed(section.targets or ["*"]):
        at = section.at_of("targets")
        members = matching.find(pattern, _WHERE, mistakes, at)
        biases = [p for p in members if p.trainable and _is_bias(p, matching.readers[p.name])]
        found |= {p.name: p for p in biases}
        if members and not biases:
            mistakes.say(f"{_WHERE}: '{pattern}' fits no bias", at, "name layers that have biases; pe summary shows the parameters")
    return list(found.values())


def _is_bias(parameter: Parameter, readers: Sequence[Operator]) -> bool:
    for op in readers:
        slots = {slot for slot, names in op.inputs.items() if parameter.name in names}
        # A bias stands in a slot of that name, or is what an addition takes as its weight.
        if slots != {"Bias"} and not (op.definition.has(Weight) and op.definition.has(PassesGradient)):
            return False
    return bool(readers) and len(parameter.shape) == 1


def _networks(program: Program, section: AdaptSection, mistakes: Mistakes) -> None:
    """Put a small network behind each layer that a pattern fits."""
    act = section.act or "relu"
    if act not in activations():
        hint = did_you_mean(act, activations()) or f"one of {', '.join(activations())}"
        mistakes.say(f"train.adapt: there is no activation '{act}'", section.at_of("act"), hint)
        return
    last = {op.scope.strip("/"): op for op in program.top_ops if op.scope}
    at, chosen = section.at_of("targets"), dict[str, Operator]()
    for pattern in listed(section.targets or []):
        # The last op of each layer: a network behind a layer reads what the layer gives in the end.
        fitting = {layer: op for layer, op in last.items() if fits(layer, pattern)}
        if not fitting:
            mistakes.say(f"{_WHERE}: no layer is called '{pattern}'", at, nearest(pattern, sorted(last)))
        good = {layer: op for layer, op in fitting.items() if _is_wide(program.vars[op.output_names()[0]])}
        if fitting and not good:
            text = f"{_WHERE}: '{pattern}' fits no layer that gives floats with a last axis of a known size"
            mistakes.say(text, at, "name layers such as fc; pe summary shows what layers give")
        chosen |= good
    for layer, op in chosen.items():
        with program.place(at):
            _network(program, layer, op, section.size or 16, act)


def _is_wide(x: Variable) -> bool:
    return x.dtype in FLOATS and len(x.shape) > 1 and x.shape[-1] > 0 and not x.persistable


def _network(program: Program, layer: str, op: Operator, size: int, act: str) -> None:
    """Put x + act(x D + d) U + u in the place of x.

    Source:
        Houlsby et al. 2019, section 2.1.
    """
    inserted = Insertion(program, op)
    x = inserted.given
    width, kept = x.shape[-1], len(x.shape) - 1

    def product(x: Variable, part: str, sizes: tuple[int, int], first: Initializer) -> Variable:
        helper = LayerHelper("adapt", f"{layer}.{part}")
        weight = helper.parameter(ParamAttr(name=f"{layer}.{part}_w", initializer=first), sizes, x.dtype)
        bias = helper.parameter(ParamAttr(name=f"{layer}.{part}_b"), sizes[1:], x.dtype, is_bias=True)
        made = inserted.one("mul", {"X": x, "Y": weight}, {"x_num_col_dims": kept, "y_num_col_dims": 1})
        return inserted.one("elementwise_add", {"X": made, "Y": bias}, {"axis": kept})

    inner = product(x, "adapter_down", (width, size), Normal(0.0, _DEVIATION))
    # U begins as 0, so the network adds nothing at first and training starts from what the model does.
    outer = product(inserted.one(act, {"X": inner}), "adapter_up", (size, width), Constant(0.0))
    inserted.one("elementwise_add", {"X": x, "Y": outer}, {"axis": -1}, last=True)
