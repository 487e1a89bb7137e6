"""Inference models by 2.x's arguments: a path prefix instead of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pe_cli.paddle.fluid import io


def save_inference_model(path_prefix: str, feed_vars: Any, fetch_vars: Any, executor: Any, program: Any = None) -> None:
    """Save PREFIX.pdmodel and PREFIX.pdiparams; see `fluid.io.save_inference_model`."""
    feeds = [v.name for v in (feed_vars if isinstance(feed_vars, (list, tuple)) else [feed_vars])]
    path = Path(path_prefix)
    block = (feed_vars[0] if isinstance(feed_vars, (list, tuple)) else feed_vars).block
    names = f"{path.name}.pdmodel", f"{path.name}.pdiparams"
    io.save_inference_model(path.parent, feeds, fetch_vars, executor, program or block.program, *names)


def load_inference_model(path_prefix: str, executor: Any) -> list[Any]:
    """Load what `save_inference_model` saved: [program, names of what is fed, variables to fetch]."""
    path = Path(path_prefix)
    return io.load_inference_model(path.parent, executor, f"{path.name}.pdmodel", f"{path.name}.pdiparams")
