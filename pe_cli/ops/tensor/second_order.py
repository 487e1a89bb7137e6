"""Gradients of gradients of ops that move elements: the op itself, applied to the gradient."""

from __future__ import annotations

from pe_cli.ops.define.second_gradients import linear

for _name in ("cast", "split", "expand", "reshape", "flatten", "squeeze", "unsqueeze", "reverse", "transpose", "tril_triu"):
    linear(_name)
linear("concat")
linear("stack", out="Y")
linear("unstack", out="Y")
linear("slice", "Input")
linear("strided_slice", "Input")
# With another value padding is affine: the border is no part of what is linear in the operand.
linear("pad", changed={"pad_value": 0.0})
linear("pad2d", changed={"pad_value": 0.0})
linear("select", "X Y", inputs="Condition")
linear("gather_nd", inputs="Index")
linear("gather", inputs="Index")
