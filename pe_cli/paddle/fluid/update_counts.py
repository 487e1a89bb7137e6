"""How many names the original uses up for what an optimizer appends beside its updates: clipping, decay, and rates of parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.optim import clip as core
from pe_cli.program.sparse import rows_of

#: Of one gradient, by the way that it is clipped.
_CLIPPED = {core.GradientClipByValue: {"clip": 1}, core.GradientClipByNorm: {"clip_by_norm": 1}}
#: Of a gradient that is one of a group, and of the group.
_MEMBER = {"square": 1, "reduce_sum": 1, "elementwise_mul": 1}
_GROUP = {"sum": 1, "sqrt": 1, "fill_constant": 1, "elementwise_max": 1, "elementwise_div": 1}
#: Of a row-sparse gradient in a group.
_ROWS = {"merge_selected_rows": 1, "get_tensor_from_selected_rows": 1}


def of_updates(pairs: Sequence[tuple[Any, Any]], common: Any, decay: Any, *, rates: bool) -> Mapping[str, int]:
    """Return what the original uses up.

    Args:
        pairs: (parameter, gradient).
        common: the way that gradients of parameters without their own are clipped, or None.
        decay: regularizer of parameters without their own, or None.
        rates: the update takes a rate, which parameters may have a factor for.
    """
    used: Counter[str] = Counter()
    groups = set()
    for parameter, gradient in pairs:
        clip = parameter.gradient_clip or common
        if clip is not None and clip.applies_to(parameter):
            for kind, counts in _CLIPPED.items():
                used.update(counts if isinstance(clip, kind) else {})
            if isinstance(clip, core.GradientClipByGlobalNorm):
                groups.add(clip.group_name)
                used.update(_MEMBER)
                used.update(_ROWS if rows_of(gradient.block, gradient.name) else {})
        used["_generated_var"] += (parameter.regularizer or decay) is not None
        used["tmp"] += rates and parameter.learning_rate != 1.0
    for _ in groups:
        used.update(_GROUP)
    return used
