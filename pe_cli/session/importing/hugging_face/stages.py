"""Networks whose blocks come in stages that a config lists: a row of values for each block."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_NAMED = re.compile(r"\$\(([a-z_0-9]+)\)")
#: Blocks of a model, at most.
MOST_ROWS = 1000


def rows(
    lists: Mapping[str, Sequence[int]], scaled: Callable[[int], int], deep: float, squeeze: float, padded: Sequence[Any], even: bool,
    side: int | None = None,
) -> list[dict[str, Any]]:
    """Return a row of values for each inverted residual of a network like EfficientNet.

    The first block of a stage has the stage's stride and no sum with its input.

    Args:
        lists: repeats, in, out, kernel, stride and ratio, an item for each stage.
        scaled: gives channels the width of the network.
        deep: how many times as many blocks there are as `repeats` says, rounded up.
        squeeze: channels of the gate over those of the block's input.
        padded: numbers of blocks whose filters stand in the middle of the picture although they leave out every other pixel.
        even: whether all do.
        side: of the pictures, where all are padded as TensorFlow does: evenly where the input of a block has an odd side; else None.

    Returns:
        `i`, `stage` and `at` are the block's numbers, `kind` the block of the model file, `inner` the channels between, `narrow` those of
        the gate, `padding` above, below, left and right. `n1`, `n2` and `n3` count its parts as timm and torchvision number them.
    """
    found: list[dict[str, Any]] = []
    left = None if side is None else -(-side // 2)  # behind the stem, which leaves out every other pixel
    for stage, count in enumerate(lists["repeats"]):
        given, out = scaled(lists["in"][stage]), scaled(lists["out"][stage])
        kernel, ratio = lists["kernel"][stage], lists["ratio"][stage]
        for at in range(min(math.ceil(deep * count), MOST_ROWS + 1)):
            number, stride = len(found), 1 if at else lists["stride"][stage]
            source, half, expanded = out if at else given, kernel // 2, int(ratio != 1)
            middle = number in padded if left is None else left % 2 == 1
            before = half if stride == 1 or even or middle else half - 1
            left = None if left is None else -(-left // stride)
            found.append({
                "i": number, "stage": stage, "at": at, "kind": ("plain", "expanded")[expanded] + ("_residual" if at else ""),
                "inner": source * ratio, "out": out, "narrow": max(1, int(source * squeeze)), "kernel": kernel, "stride": stride,
                "padding": [before, half, before, half], "n1": expanded, "n2": expanded + 1, "n3": expanded + 2,
                "next_stage": stage + 1,
            })  # fmt: skip
            if len(found) > MOST_ROWS:
                return found
    return found


def listed_rows(lists: Mapping[str, Sequence[int]], stem: int, even: bool, side: int | None = None) -> list[dict[str, Any]]:
    """Return a row of values for each inverted residual of a network that lists every one, as MobileNetV3 does.

    Args:
        lists: stage, kernel, inner, out, narrow (0 for no gate), swish (0 for relu) and stride, an item for each block.
        stem: channels of the first block's input.
        even: whether filters stand in the middle of the picture.
        side: as of `rows`.

    Returns:
        As `rows` does, with `act`; `n1` to `n3` count parts as timm does, `m1` to `m3` as torchvision. `last` is the number of stages, and
        `top` that of torchvision's part behind the blocks.
    """
    found: list[dict[str, Any]] = []
    left = None if side is None else -(-side // 2)
    given, count = stem, len(lists["stage"])
    for i in range(min(count, MOST_ROWS + 1)):
        row = {name: values[i] for name, values in lists.items()}
        expanded, gated = int(row["inner"] != given), int(row["narrow"] > 0)
        half, stride = row["kernel"] // 2, row["stride"]
        middle = stride == 1 or even if left is None else stride == 1 or left % 2 == 1
        before = half if middle else half - 1
        left = None if left is None else -(-left // stride)
        at = sum(stage == row["stage"] for stage in lists["stage"][:i])
        kind = ("plain", "expanded")[expanded] + "_gated" * gated + "_residual" * (stride == 1 and given == row["out"])
        found.append({
            **row, "i": i, "at": at, "kind": kind, "act": ("relu", "hard_swish")[row["swish"]], "padding": [before, half, before, half],
            "n1": expanded, "n2": expanded + 1, "n3": expanded + 2, "m1": expanded, "m2": expanded + 1, "m3": expanded + 1 + gated,
            "next_block": i + 1, "last": max(lists["stage"]) + 1, "top": count + 1,
        })  # fmt: skip
        given = row["out"]
    return found


def by_rows(modules: Mapping[str, Any], made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return modules with the numbers of each row in the place of `$(name)`, which may stand within text.

    >>> by_rows({"blocks.$(stage).$(at).dw": "block$(i)/dw"}, [{"stage": 1, "at": 0, "i": 3}])
    {'blocks.1.0.dw': 'block3/dw'}
    """
    found: dict[str, Any] = {}
    for row in made:
        for theirs, ours in modules.items():
            found[_put(theirs, row)] = [_put(one, row) for one in ours] if isinstance(ours, list) else _put(ours, row)
    return found


def _put(text: str, row: Mapping[str, Any]) -> str:
    return _NAMED.sub(lambda match: str(row[match[1]]), text)
