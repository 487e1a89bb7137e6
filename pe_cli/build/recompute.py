"""train.recompute: chooses the layers behind which activations are kept; the backward pass recomputes the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.recompute import Every
from pe_cli.core.errors import Span, did_you_mean
from pe_cli.program.ir import Program
from pe_cli.program.segments import cut


def set_checkpoints(program: Program, wish: Literal["blocks"] | Every | list[str], mistakes: Mistakes, at: Span | None) -> None:
    """Part a program of forward ops into segments.

    Args:
        program: changed.
        wish: as written.
        mistakes: get layers that there are not, and wishes that nothing can act on.
        at: place of the wish.
    """
    layers = [op.scope.strip("/") for op in program.top_ops]
    if isinstance(wish, list):
        for name in wish:
            if name not in layers:
                text = f"train.recompute: there is no layer '{name}'"
                mistakes.say(text, at, did_you_mean(name, layers) or "pe summary shows the layers by name")
        ends = [_last(layers, name) for name in wish]
    elif isinstance(wish, Every):
        order = list(dict.fromkeys(layers))
        ends = [_last(layers, name) for name in order[wish - 1 :: wish]]
    else:
        # A model file's blocks are its natural segments: little passes from one to the next.
        blocks = [_block(layer) for layer in layers]
        ends = [_last(blocks, block) for block in dict.fromkeys(blocks) if block]
        if not ends:
            hint = "use blocks: in the model file, or write recompute: {every: 3}"
            mistakes.say("train.recompute: the model has no blocks", at, hint)
    if mistakes:
        return
    if not cut(program, ends):
        mistakes.say("train.recompute: nothing is left behind these layers", at, "name layers in the middle of the model")


def _last(layers: Sequence[str], name: str) -> int:
    """Return the last operator of a layer, -1 for none."""
    return max((i for i, layer in enumerate(layers) if layer == name), default=-1)


def _block(layer: str) -> str:
    """Return the use of a block that a layer stands in: `stage1/0` of `stage1/0/conv`, `head` of `head/fc`; empty for none."""
    parts = layer.split("/")
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), 0)
    return "/".join(parts[: numbered + 1]) if len(parts) > 1 else ""
