"""Weights of classes in the training loss: `data.class_weights`."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.config.nodes import ScalarNode
from pe_cli.config.spec import LayerSpec, ModelSpec
from pe_cli.core.errors import PeError, Span
from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import discover
from pe_cli.ops.define.traits import Compares
from pe_cli.program.ir import Block, Operator, Program, Variable

#: Feed of the training program, [classes, 1]: a factor for the loss of the samples of each class.
CLASS_WEIGHTS = "@CLASS_WEIGHTS@"


def weigh_classes(program: Program, model: ModelSpec, at: Span | None) -> None:
    """Multiply every sample's loss by the weight of its class, before anything is made of it.

    Args:
        program: for training, with forward operators only.
        model: whose layers compute the losses.
        at: place of the wish.

    Raises:
        PeError: USAGE; no layer compares scores with the numbers of classes, or several of different classes do.
    """
    block = program.main_block
    found = [layer for layer in model.layers if _loss(block, layer) and _is_hard(block, layer)]
    if not found:
        raise PeError(
            "data.class_weights: no layer of the model compares scores with class numbers",
            at=at,
            hint=f"it acts on layers of type {', '.join(d.name for d in discover().values() if d.has(Compares))} with a label of shape [1]",
        )
    widths = {_classes(block, layer) for layer in found}
    if len(widths) > 1:
        raise PeError(
            f"data.class_weights: the model's losses have {' and '.join(map(str, sorted(widths)))} classes, and weights are of one label",
            at=at,
        )
    kind = block.var(found[0].key).dtype
    table = block.create_var(CLASS_WEIGHTS, TensorType((widths.pop(), 1), kind), is_data=True, stop_gradient=True)
    for layer in found:
        _weigh(block, layer, table)


def _label(layer: LayerSpec) -> str | None:
    value = layer.args["label"].value if "label" in layer.args else None
    if not isinstance(value, ScalarNode) or not isinstance(value.value, str):
        return None
    return (value.scope or layer.scope).find(value.value)


def _is_hard(block: Block, layer: LayerSpec) -> bool:
    """Whether a loss has one value per sample and a label of one class each."""
    label = _label(layer)
    soft = layer.args["soft_label"].value if "soft_label" in layer.args else None
    if label is None or layer.key not in block.vars or (isinstance(soft, ScalarNode) and soft.value is True):
        return False
    return block.var(layer.key).shape == (-1, 1) and label in block.vars and block.var(label).shape == (-1, 1)


def _loss(block: Block, layer: LayerSpec) -> tuple[Operator, Compares] | None:
    """Return the op of a layer that compares scores with class numbers, sample by sample."""
    for op in block.ops:
        loss = op.definition.get(Compares)
        if loss is not None and layer.key in op.output_names():
            return op, loss
    return None


def _classes(block: Block, layer: LayerSpec) -> int:
    found = _loss(block, layer)
    assert found is not None
    op, loss = found
    return max(2, block.var(op.inputs[loss.scores][0]).shape[-1])


def _weigh(block: Block, layer: LayerSpec, table: Variable) -> None:
    """Insert the product behind the loss, and let what reads the loss read the product."""
    loss, label = block.var(layer.key), block.var(str(_label(layer)))
    index = max(i for i, op in enumerate(block.ops) if loss.name in op.output_names()) + 1
    ids = label.name
    program = block.program
    with program.name_scope("class_weights"):
        if label.dtype not in ("int64", "int32"):
            ids = program.unique(f"{label.name}.class")
            block.append_op("cast", {"X": label}, {"Out": ids}, {"out_dtype": "int64"}, index=index, at=layer.at)
            index += 1
        factor, product = program.unique(f"{loss.name}.weight"), program.unique(f"{loss.name}.weighted")
        block.append_op("lookup_table", {"W": table, "Ids": ids}, {"Out": factor}, index=index, at=layer.at)
        block.append_op("elementwise_mul", {"X": loss, "Y": factor}, {"Out": product}, index=index + 1, at=layer.at)
    _replace(block, index + 2, loss.name, product)


def _replace(block: Block, first: int, old: str, new: str) -> None:
    for op in block.ops[first:]:
        op.inputs = {slot: _named(names, old, new) for slot, names in op.inputs.items()}


def _named(names: Sequence[str], old: str, new: str) -> list[str]:
    return [new if name == old else name for name in names]
