"""`model.head`: the parameters of the layer that is replaced, which begin anew."""

from __future__ import annotations

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.model import HeadSection
from pe_cli.program.ir import Program
from pe_cli.program.region import every_op


def begun_anew(program: Program, head: HeadSection, mistakes: Mistakes) -> frozenset[str]:
    """Return the parameters of the layer that is replaced.

    Args:
        program: of forward ops.
        head: names the layer.
        mistakes: get a layer whose values another one reads, too, and a number of classes that nobody has counted.
    """
    if head.waits:
        # After another mistake the data was not asked.
        if not mistakes:
            hint = "write classes: N, or use a command that reads the config's data"
            mistakes.say("model.head: how many classes there are is not known without the data", head.at_of("classes"), hint)
        return frozenset()
    parameters = {p.name for p in program.parameters()}
    own: set[str] = set()
    others: dict[str, str] = {}
    for op in every_op(program):
        layer = op.scope.strip("/")
        names = parameters.intersection(op.input_names())
        if layer == head.replace:
            own |= names
        else:
            others.update(dict.fromkeys(names, layer))
    tied = sorted(own & others.keys())
    if tied and not mistakes:
        text = f"model.head: '{head.replace}' shares '{tied[0]}' with '{others[tied[0]]}', which would begin anew as well"
        hint = f"give '{head.replace}' a name of its own for it in the model file: param_attr: {{name: {head.replace}.w}}"
        mistakes.say(text, head.at_of("replace"), hint)
    return frozenset(own)
