"""Ops whose kernels run on CUDA from the same calls as on the CPU."""

from __future__ import annotations

from pe_cli.ops.define.registry import OpDef


def also_on_cuda(*definitions: OpDef) -> None:
    """Lower ops, and their gradient ops, on CUDA as on the CPU: the same calls, of kernels that CUDA knows how to run.

    Args:
        definitions: ops that are lowered for the CPU; gradient ops too, for those whose forward op is not meant.
    """
    for definition in definitions:
        for each in (definition, definition.grad_op):
            if each is not None and "cuda" not in each.lowerings:
                each.lower("cuda")(each.lowerings["cpu"])
