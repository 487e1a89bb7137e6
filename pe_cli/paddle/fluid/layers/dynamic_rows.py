"""Layers whose outputs have as many rows as a step's values say: ctc_greedy_decoder of sequences, filter_by_instag, sequence_unpad."""

from __future__ import annotations

from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidTypeError, raised_as
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.program.ir import Variable


def ctc_greedy_decoder(
    input: Variable, blank: int, input_length: Variable | None = None, padding_value: int = 0, name: str | None = None
) -> Any:
    """Take the best class of every step, make one of several in a row, and leave blanks out.

    Args:
        input: [rows, classes] with sequences, or [sequences, time, classes] with input_length.
        blank: class that stands for no label.
        input_length: steps of each sequence.
        padding_value: what is behind the labels, with input_length.

    Returns:
        Labels [labels, 1] int64 with sequences, one row of -1 where there is none. With input_length the padded labels
        [sequences, time], and how many there are, [sequences, 1].
    """
    if input_length is not None:
        return call("ctc_greedy_decoder", input, blank, input_length, padding_value, name)
    ensure_defaults()
    _, best = call("topk", input, 1)
    with raised_as(FluidTypeError):
        return LayerHelper("ctc_greedy_decoder", name).op("ctc_align_sequences", {"Input": best}, {"blank": blank}, ("Output",))[0]


def filter_by_instag(
    ins: Variable, ins_tag: Variable, filter_tag: Variable, is_lod: bool, out_val_if_empty: int = 0
) -> list[Variable]:
    """Keep the samples that have at least one of some tags.

    Args:
        ins: [rows, width]; a sample is a sequence with is_lod, else a row.
        ins_tag: int64 tags with a sequence for each sample.
        filter_tag: int64 tags that are kept.
        is_lod: see ins.
        out_val_if_empty: value of the only row where no sample is kept.

    Returns:
        The samples that are kept, and a weight of each for a loss, [samples, 1]: 1, or one 0 where none is kept.
    """
    ensure_defaults()
    inputs = {"Ins": ins, "Ins_tag": ins_tag, "Filter_tag": filter_tag}
    attrs = {"is_lod": is_lod, "out_val_if_empty": out_val_if_empty}
    with raised_as(FluidTypeError):
        made = LayerHelper("filter_by_instag").op("filter_by_instag", inputs, attrs, ("Out", "LossWeight", "IndexMap"))
    return list(made[:2])


def sequence_unpad(x: Variable, length: Variable, name: str | None = None) -> Any:
    """Take the first rows of every sequence out of a block.

    Args:
        x: [sequences, time, ...].
        length: rows of each sequence.
        name: of the result.

    Returns:
        [rows, ...] with sequences; rows of one number each are [rows, 1], as in the original.
    """
    ensure_defaults()
    # A column more, so that rows of one number keep an axis for it.
    block = LayerHelper("sequence_unpad.block").one("unsqueeze", {"X": x}, {"axes": [2]}) if len(x.shape) == 2 else x
    return call("sequence_unpad", block, length, name)


__all__ = ["ctc_greedy_decoder", "filter_by_instag", "sequence_unpad"]
