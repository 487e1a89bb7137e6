"""pe graph: a program, its graph or its plan at any stage, as text or picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import Source, override_option, path_argument, path_option

if TYPE_CHECKING:
    from pe_cli.core.types import Place
    from pe_cli.graph.ssa import Graph

STAGES = ("program", "ssa", "fused", "multi_device", "plan")


@click.command()
@path_argument("config")
@click.option("--stage", type=click.Choice(STAGES), help="What to show; program, and multi_device for pictures.")
@path_option("--dot", metavar="FILE", help="Write the graph as Graphviz text.")
@path_option("--svg", metavar="FILE", help="Write the graph as a picture; needs Graphviz.")
@click.option("--eval", "evaluation", is_flag=True, help="The evaluation program instead of the training program.")
@click.option("--devices", type=click.IntRange(min=1), help="Number of devices instead of the config's.")
@override_option
def command(
    config: Path,
    stage: str | None,
    dot: Path | None,
    svg: Path | None,
    evaluation: bool,
    devices: int | None,
    overrides: tuple[str, ...],
) -> None:
    r"""Print or draw what CONFIG becomes.

    CONFIG may be a model file too. The stages:

    \b
    program       the operators in order, with gradients and updates
    ssa           the same as a graph on one device, every write a version
    fused         after the passes that the build strategy asks for
    multi_device  replicated over all devices, with the sums of gradients
    plan          every kernel call with its memory, for one batch
    """
    from pe_cli.cli.common import open_source, places_of
    from pe_cli.core.errors import PeError
    from pe_cli.graph.ssa import describe
    from pe_cli.program.text import print_program

    source = open_source(config, overrides)
    draws = dot is not None or svg is not None
    stage = stage or ("multi_device" if draws else "program")
    if draws and stage in ("program", "plan"):
        raise PeError(
            f"the stage {stage} is text, there is no picture of it",
            hint="use --stage ssa, or leave out --dot and --svg",
        )
    if stage == "program":
        click.echo(print_program(source.program(evaluation)), nl=False)
        return
    places = places_of(source, devices)
    if stage == "plan":
        click.echo(_plan(source, places, evaluation), nl=False)
        return
    graph = _graph(source, stage, places, evaluation)
    if draws:
        _draw(graph, f"{source.model.name}: {stage}", dot, svg)
    else:
        click.echo(describe(graph), nl=False)


def _graph(source: Source, stage: str, places: tuple[Place, ...], evaluation: bool) -> Graph:
    from pe_cli.core.strategy import BuildStrategy
    from pe_cli.graph.pipeline import apply_passes
    from pe_cli.graph.replicate import replicate

    program = source.program(evaluation)
    strategy = source.run.build_strategy if source.run else BuildStrategy()
    if stage != "ssa":
        program = apply_passes(program, strategy, list(source.built.fetches.values()))
    return replicate(program, places if stage == "multi_device" else places[:1], strategy)


def _draw(graph: Graph, title: str, dot: Path | None, svg: Path | None) -> None:
    """Write the files; the text first, because it needs no renderer."""
    from pe_cli.graph.dot import render_svg, to_dot
    from pe_cli.io import atomic

    text = to_dot(graph, title=title)
    if dot is not None:
        atomic.write_text(dot, text)
        click.echo(f"{len(graph.nodes)} ops -> {dot}")
    if svg is not None:
        atomic.write_bytes(svg, render_svg(text))
        click.echo(f"{len(graph.nodes)} ops -> {svg}")


def _plan(source: Source, places: tuple[Place, ...], evaluation: bool) -> str:
    from pe_cli.devices.scope import Scope
    from pe_cli.execute.describe import describe_plan
    from pe_cli.execute.estimate import feed_types, split_types
    from pe_cli.execute.executor import Executor, split_sizes

    program = source.program(evaluation)
    run = source.run
    executor = Executor(
        program,
        Scope(places),
        build=run.build_strategy if run else None,
        execution=run.exec_strategy if run else None,
        seed=run.executor.seed if run else 0,
    )
    sizes = split_sizes(source.batch_size, len(places))
    parts = split_types(feed_types(program, source.batch_size), program, sizes)
    fetches = list(dict.fromkeys(source.built.fetches.values()))
    return describe_plan(executor.plan(parts, sizes, fetches))
