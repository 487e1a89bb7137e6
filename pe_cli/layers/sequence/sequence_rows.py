"""Layers that group rows anew: repeated, joined, padded, reversed or cut sequences."""

from __future__ import annotations

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.define.size_arguments import Size, fed_size
from pe_cli.program.ir import Variable


@layer
def sequence_pad(
    x: Variable, pad_value: Variable, maxlen: int | None = None, name: str | None = None
) -> list[Variable]:
    """Write every sequence into its row of a block, and a value behind its end.

    Args:
        x: [rows, ...] with sequences.
        pad_value: one number, or one for every element of a row; dtype of x.
        maxlen: rows of each sequence in the block; null for those of the longest of a batch.
        name: prefix of the outputs' names.

    Returns:
        [sequences, maxlen, ...], dtype of x; and the lengths, int64 [sequences].

    Raises:
        PeError: pad_value does not fit; in a step, a sequence is longer than maxlen.

    Source:
        fluid.layers.sequence_pad.
    """
    helper = LayerHelper("sequence_pad", name)
    # -1 stands for the longest sequence of a batch, which is known before its step, since lengths come with the feeds.
    attrs = {"padded_length": -1 if maxlen is None else maxlen}
    return helper.op("sequence_pad", {"X": x, "PadValue": pad_value}, attrs, ("Out", "Length"))


@layer
def sequence_mask(x: Variable, maxlen: Size | None = None, dtype: str = "int64", name: str | None = None) -> Variable:
    """Mark the steps that sequences of given lengths have.

    out[..., t] = 1 where t < x[...], else 0

    Args:
        x: [...] lengths.
        maxlen: steps of the mask; null for the largest length of a batch, which must then be fed.
        dtype: of the mask.
        name: prefix of the output's name.

    Returns:
        [..., maxlen] of dtype.

    Raises:
        PeError: maxlen below 1; without maxlen, x is computed in the step.

    Source:
        fluid.layers.sequence_mask.
    """
    helper = LayerHelper("sequence_mask", name)
    if x.dtype in ("float32", "float64"):
        # The original counts a step where t < x: for a length that is no whole number these are as many as its ceiling.
        x = helper.one("ceil", {"X": x})
    if x.dtype != "int64":
        x = helper.one("cast", {"X": x}, {"in_dtype": x.dtype, "out_dtype": "int64"})
    steps, fed = fed_size(helper, "maxlen", -1 if maxlen is None else maxlen)
    return helper.one("sequence_mask", {"X": x, "Maxlen": fed}, {"maxlen": steps, "out_dtype": dtype}, "Y")


@layer
def lod_reset(x: Variable, y: Variable | None = None, target_lod: list[int] | None = None) -> Variable:
    """Group the rows of a tensor into other sequences.

    Args:
        x: [rows, ...].
        y: its sequences are taken; where it has none, its values are offsets.
        target_lod: offsets, where there is no y: 0, ..., rows.

    Returns:
        Shape, dtype and values of x.

    Raises:
        PeError: neither y nor target_lod; before a step, offsets that do not fit.

    Source:
        fluid.layers.lod_reset.
    """
    helper = LayerHelper("lod_reset")
    if y is None and not target_lod:
        raise helper.error(
            "lod_reset needs y or target_lod", hint="target_lod: [0, 2, 5] makes sequences of 2 and 3 rows"
        )
    return helper.one("lod_reset", {"X": x, "Y": y}, {"target_lod": list(target_lod or [])})


@layer
def lod_append(x: Variable, level: list[int]) -> Variable:
    """Add a level of sequences inside those that a tensor has.

    Args:
        x: [rows, ...] with sequences, whose last level counts the new ones.
        level: offsets of the new level: 0, ..., rows.

    Returns:
        Shape, dtype and values of x.

    Raises:
        PeError: before a step, offsets that do not fit.

    Source:
        fluid.layers.lod_append.
    """
    # A config gives numbers alone; from Python a variable may give the offsets.
    if isinstance(level, Variable):
        return LayerHelper("lod_append").one("lod_reset", {"X": x, "Y": level}, {"append": True})
    return LayerHelper("lod_append").one("lod_reset", {"X": x}, {"target_lod": list(level), "append": True})


@layer(made_of="mark_by_instag")
def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> tuple[Variable, Variable]:
    """Keep the samples that have at least one of some tags, and let the others count nothing.

    Every sample stays at its place, so that labels go on fitting: multiply its loss by its weight, and divide by the sum of the weights.

    Args:
        ins: [rows, width]; a sample is a sequence with is_lod, else a row.
        ins_tag: int64 tags with a sequence for each sample; plain rows are one tag for each.
        filter_tag: int64 tags that are kept, any shape.
        is_lod: see ins.
        out_val_if_empty: what the rows of other samples become.

    Returns:
        Type of ins, with the rows of samples that are kept and out_val_if_empty in the others; and a weight of each sample for a loss,
        [samples, 1] float32: 1 for each that is kept, else 0.

    Raises:
        PeError: types that do not fit, or is_lod without sequences; in a step, not as many sequences of tags as samples.

    Source:
        fluid.layers.filter_by_instag, which leaves the other samples out.
    """
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    out, weight = LayerHelper("filter_by_instag").op("mark_by_instag", inputs, attrs, ("Out", "LossWeight"))
    # A weight comes from tags, which nothing learns.
    weight.stop_gradient = True
    return out, weight
