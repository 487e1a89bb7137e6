"""memory_optimize and release_memory: plans do that by themselves."""

from __future__ import annotations

from typing import Any

from pe_cli.program.ir import Program


def memory_optimize(
    input_program: Program, skip_opt_set: Any = None, print_log: bool = False, level: int = 0, skip_grads: bool = False
) -> None:
    """Accept the wish to reuse memory: every plan does, and never reuses what is fetched or persistable."""
    if print_log:
        print("memory_optimize: buffers are shared by liveness when a step is planned")  # noqa: T201 (asked for)


def release_memory(input_program: Program, skip_opt_set: Any = None) -> None:
    """Accept the wish to free variables early: a plan gives their bytes to later ones."""


__all__ = ["memory_optimize", "release_memory"]
