"""Checks that the model can produce its targets: class numbers within its scores, numbers within the range of its last layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.config.nodes import ScalarNode
from pe_cli.config.spec import LayerSpec
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import FLOATS
from pe_cli.data import Dataset
from pe_cli.layers.define.registry import find
from pe_cli.ops.define.traits import Bounded, Compares
from pe_cli.program.ir import Operator
from pe_cli.session.data.label_feeds import is_label
from pe_cli.session.data.row_locator import first_row, row_of

if TYPE_CHECKING:
    from pe_cli.session.job import Job

#: Share of a range beyond which a number lies outside it: what is scaled in float32 is not exact.
SLACK = 1e-4


def check_targets(job: Job, use: str, dataset: Dataset, targets: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return sentences about numbers that the last layer cannot produce.

    Args:
        job: whose model is taught.
        use: of the data.
        dataset: its samples.
        targets: field -> one number per sample, of every label that has one.

    Raises:
        PeError: DATA; a class has no place among the model's scores, so that training would end there.
    """
    for name, op, scores in _classes(job):
        fed = _fed(job, name, targets)
        # Labels of floats are shares of classes, and no numbers of them.
        if fed is None or fed.dtype.name in FLOATS:
            continue
        limit, ignored = job.built.eval.var(scores).shape[-1], op.attrs.get("ignore_index")
        bad = np.flatnonzero(((fed < 0) | (fed >= limit)) & (fed != (-1 if ignored is None else ignored)))
        if len(bad) and limit > 0:
            where = row_of(dataset, int(bad[0]), first_row(job.run.data[use]))
            what = f"{op.type}: feed '{name}' is class {int(fed[bad[0]])} at {where} of data.{use}"
            raise PeError(
                f"{what}, and '{scores}' has the classes 0 to {limit - 1}",
                at=op.at,
                hint=f"give '{scores}' {int(fed.max()) + 1} classes, or count classes from 0",
                code=ExitCode.DATA,
            )
    return list(_beyond(job, use, targets))


def _classes(job: Job) -> Iterator[tuple[str, Operator, str]]:
    """Yield feeds of class numbers with the op that compares them with scores, and those scores."""
    for op in job.built.eval.top_ops:
        found = op.definition.get(Compares)
        if found is not None and found.several and not op.attrs.get("soft_label"):
            (name,), (scores,) = op.inputs[found.labels], op.inputs[found.scores]
            if name in job.run.model.feeds:
                yield name, op, scores


def _fed(job: Job, name: str, targets: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    """Return what a feed is fed of a target; None where that is no number per sample."""
    source, section = job.data.sources.get(name), job.run.feeds.get(name)
    values = targets.get(source.field) if source is not None and len(source.names) == 1 else None
    if values is None or section is None:
        return values
    if section.one_hot is not None:
        return None
    scaled = values if section.scale == 1 and section.shift == 0 else values * section.scale + section.shift
    whole = job.built.feeds[name].dtype not in FLOATS if name in job.built.feeds else False
    return scaled.astype(np.int64) if whole else scaled


def _beyond(job: Job, use: str, targets: Mapping[str, NDArray[Any]]) -> Iterator[str]:
    """Yield sentences about labels whose numbers lie outside what the layer they are compared with can make."""
    maker = {name: op for op in job.built.eval.top_ops for name in op.output_names()}
    for layer in job.run.model.layers:
        for argument in layer.args:
            if not is_label(layer.type, argument):
                continue
            name = _variable(layer, argument)
            fed = _fed(job, name, targets) if name in job.run.model.feeds else None
            if fed is None or not len(fed) or fed.dtype.name not in FLOATS:
                continue
            for other in _compared(layer):
                made = maker.get(other)
                bounds = made.definition.get(Bounded) if made is not None else None
                low, high = float(fed.min()), float(fed.max())
                slack = SLACK * max(abs(low), abs(high), 1.0)
                if made is not None and bounds is not None and (low < bounds.low - slack or high > bounds.high + slack):
                    yield (
                        f"'{other}' ({made.type}) makes {_range(bounds)}, and '{name}' of data.{use} goes from {low:.6g} to {high:.6g}:"
                        " leave the activation out, or scale the column"
                    )


def _variable(layer: LayerSpec, argument: str) -> str:
    """Return the variable that an argument of a layer names; empty for none."""
    node = layer.args[argument].value
    if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
        return ""
    return (node.scope or layer.scope).find(node.value) or node.value


def _compared(layer: LayerSpec) -> Iterator[str]:
    """Yield the variables that a layer compares with its label."""
    declared = find(layer.type)
    for name, argument in declared.args.items():
        if argument.kind == "variable" and not is_label(layer.type, name):
            if name in layer.args:
                yield _variable(layer, name)
            elif name == declared.implied and layer.previous is not None:
                yield layer.previous


def _range(bounds: Bounded) -> str:
    if np.isinf(bounds.high):
        return f"nothing below {bounds.low:g}"
    return f"{bounds.low:g} to {bounds.high:g}"
