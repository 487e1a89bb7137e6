"""Pictures of the graph in a run's folder, where build_strategy.debug_graphviz_path asks for them."""

from __future__ import annotations

from pe_cli.graph.dot import to_dot
from pe_cli.graph.pipeline import Target, apply_passes
from pe_cli.graph.replicate import replicate
from pe_cli.io import atomic
from pe_cli.io.run_folder import RunFolder
from pe_cli.session.job import Job


def draw(job: Job, folder: RunFolder) -> None:
    """Write the graph as it was, after passes, and over all devices.

    Raises:
        PeError: a file can't be written.
    """
    strategy = job.run.build_strategy
    program = job.program
    target = Target.of(job.places, job.team.size, checked=job.run.executor.check_nan_inf)
    optimised = apply_passes(program, strategy, [], target=target)
    one = job.places[:1]
    for name, graph in (
        ("original_graph", replicate(program, one, strategy)),
        ("fused_graph", replicate(optimised, one, strategy)),
        ("multi_devices_graph", replicate(optimised, job.places, strategy, processes=job.team.size)),
    ):
        path = folder.path / f"{strategy.debug_graphviz_path}{name}.dot"
        atomic.make_folder(path.parent)
        atomic.write_text(path, to_dot(graph, title=f"{job.run.model.name}: {name}"))
