"""Pictures of the graph in a run's folder, where build_strategy.debug_graphviz_path asks for them."""

from __future__ import annotations

from pe_cli.graph.compile import Stages
from pe_cli.graph.dot import to_dot
from pe_cli.io import atomic
from pe_cli.io.run_folder import RunFolder


def draw(stages: Stages, folder: RunFolder, prefix: str, model: str) -> None:
    """Write the graph as it was, after passes, and over all devices.

    Args:
        stages: of the steps that will run.
        folder: of the run.
        prefix: what the names of the files begin with.
        model: for the titles.

    Raises:
        PeError: a file can't be written.
    """
    for name, stage in (("original_graph", "ssa"), ("fused_graph", "fused"), ("multi_devices_graph", "multi_device")):
        path = folder.path / f"{prefix}{name}.dot"
        atomic.make_folder(path.parent)
        atomic.write_text(path, to_dot(stages.stage(stage), title=f"{model}: {name}"))
