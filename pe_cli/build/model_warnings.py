"""Warnings about a model that is valid but probably a mistake: a loss on the wrong kind of numbers, or a layer that nothing uses."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pe_cli.config.spec import ModelSpec
from pe_cli.ops.define.traits import Compares, Says, ToProbabilities
from pe_cli.program.ir import Operator, Program, Role
from pe_cli.program.region import every_op


def model_warnings(program: Program, model: ModelSpec, used: Collection[str] = ()) -> list[str]:
    """Return sentences about what a model's author hardly means.

    Args:
        program: of the model, with or without gradients.
        model: it.
        used: variables that are read by others than its layers: the loss, and what is fetched.
    """
    return [*loss_warnings(program), *_unused([op for op in program.top_ops if op.role is Role.FORWARD], model, used)]


def loss_warnings(program: Program) -> list[str]:
    """Return those of the sentences that explain a loss which is no number."""
    return list(_losses([op for op in every_op(program) if op.role is Role.FORWARD]))


def _losses(ops: list[Operator]) -> Iterator[str]:
    """Yield losses that take logits and are given probabilities, or the other way round."""
    maker = {name: op for op in ops for name in op.output_names()}
    for op in ops:
        compared = op.definition.get(Compares)
        if compared is None:
            continue
        (scores,) = op.inputs[compared.scores]
        made = maker.get(scores)
        layer = op.scope.strip("/") or op.type
        if made is None:
            continue
        if compared.are is Says.LOGITS and _gives_probabilities(made):
            yield f"'{layer}' makes probabilities of its scores itself, and '{scores}' are some already: give it what they are made of"
        # Probabilities may come from further back: a clip or a reshape leaves them what they are.
        elif compared.are is Says.PROBABILITIES and not any(_gives_probabilities(o) for o in _behind(made, maker)):
            yield f"'{layer}' takes probabilities, and nothing makes '{scores}' some: put a softmax or sigmoid before it"


def _gives_probabilities(op: Operator) -> bool:
    found = op.definition.get(ToProbabilities)
    return found is not None and not found.logarithms


def _behind(op: Operator, maker: dict[str, Operator]) -> Iterator[Operator]:
    """Yield an op and those that it depends on."""
    waiting, seen = [op], {id(op)}
    while waiting:
        this = waiting.pop()
        yield this
        for name in this.input_names():
            before = maker.get(name)
            if before is not None and id(before) not in seen:
                seen.add(id(before))
                waiting.append(before)


def _unused(ops: list[Operator], model: ModelSpec, used: Collection[str]) -> Iterator[str]:
    """Yield layers none of whose results is read."""
    # Uses within a block do not count: what its last layer gives has to be read outside.
    top = {name: op.scope.partition("/")[0] for op in ops for name in op.output_names()}
    needed = {top[name] for name in used if name in top}
    needed |= {top[name] for op in ops for name in op.input_names() if top.get(name, "") != op.scope.partition("/")[0] and name in top}
    for layer in model.layers:
        first = layer.key.partition("/")[0]
        if first in top.values() and first not in needed:
            yield f"nothing uses layer '{layer.key}'"
