"""Gradients of gradients of ops that move elements: the op itself, applied to the gradient."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import find
from pe_cli.ops.define.second import SECOND, Again, linear, second

for _name in ("cast", "split", "expand", "reshape", "flatten", "squeeze", "unsqueeze", "reverse", "transpose", "tril_triu"):
    linear(_name)
linear("concat")
linear("stack", out="Y")
linear("unstack", out="Y")
linear("slice", "Input")
linear("pad", changed={"pad_value": 0.0})
linear("pad2d", changed={"pad_value": 0.0})
linear("select", "X Y", inputs="Condition")
linear("gather_nd", inputs="Index")
linear("gather", inputs="Index")

_gather = SECOND.pop("gather")


@second("gather")
def _gather_again(r: Again) -> None:
    """Only without `overwrite`: with it the gradient of a row that is taken twice is that of one of its places.

    Raises:
        PeError: overwrite is set.
    """
    if find("gather").attrs["overwrite"] and r.attrs["overwrite"]:
        raise PeError("the gradient of 'gather' with overwrite has no gradient of its own", hint="set overwrite: false")
    _gather(r)
