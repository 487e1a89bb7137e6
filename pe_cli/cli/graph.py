"""pe graph: a program, its graph or its plan at any stage, as text or picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import Source, override_option, path_argument, path_option, phase_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.core.types import TensorType
    from pe_cli.execute.executor import Executor
    from pe_cli.execute.plan.plan import Plan
    from pe_cli.graph.compile import Stages
    from pe_cli.graph.picture import Picture
    from pe_cli.graph.ssa import Graph, VarNode
    from pe_cli.program.ir import Program
    from pe_cli.session.device_choice import Resources

STAGES = ("model", "program", "ssa", "fused", "multi_device", "executed", "plan")


@click.command()
@path_argument("config")
@click.option("--stage", type=click.Choice(STAGES), help="What to show; program, and multi_device for pictures.")
@path_option("--dot", metavar="FILE", help="Write the graph as Graphviz text.")
@path_option("--svg", metavar="FILE", help="Write the graph as a picture; with --schedule the curve.")
@click.option("--only", multiple=True, metavar="ROLE|TYPE", help="Draw ops of a role or type only. May be given again.")
@click.option("--around", metavar="VAR", help="Draw the ops around a variable only.")
@click.option("--radius", type=click.IntRange(min=1), default=1, show_default=True, help="How many ops around it.")
@click.option("--full", is_flag=True, help="Draw every op of a large graph, or every layer, not a box per block.")
@click.option("--eval", "evaluation", is_flag=True, help="The evaluation program instead of the training program.")
@click.option("--devices", type=click.IntRange(min=1), help="Number of devices instead of the config's.")
@click.option("--schedule", is_flag=True, help="The learning rate of every step that the run will do, instead of a graph.")
@phase_option
@click.option("--role", type=click.Choice(("trainer", "server")), help="What a trainer or a parameter server runs.")
@click.option("--number", type=click.IntRange(min=0), default=0, show_default=True, help="With --role: which trainer or server.")
@click.option("--processes", type=click.IntRange(min=2), help="With --role: processes, servers among them; two trainers when absent.")
@override_option
def command(  # noqa: PLR0913, PLR0917 - one parameter per option
    config: Path,
    stage: str | None,
    dot: Path | None,
    svg: Path | None,
    only: tuple[str, ...],
    around: str | None,
    radius: int,
    full: bool,
    evaluation: bool,
    devices: int | None,
    schedule: bool,
    phase: str | None,
    role: str | None,
    number: int,
    processes: int | None,
    overrides: tuple[str, ...],
) -> None:
    """Print or draw what CONFIG becomes.

    CONFIG may be a model file too. The stages:

    \b
    model         the layers with the shapes that flow between them; blocks are
                  folded where there are many
    program       the operators in order, with gradients and updates
    ssa           the same as a graph on one device, every write a version
    fused         after the passes that the build strategy asks for
    multi_device  replicated over all devices, with the sums of gradients
    executed      as it is run: what devices share is done once
    plan          every kernel call with its memory, for one batch

    With --schedule: how the learning rate will change over the steps of the run. With --role: what a trainer or a parameter server runs.
    """  # noqa: D301 - the mark is click's, a character
    from pe_cli.cli.common import open_source, resources_of
    from pe_cli.core.errors import PeError

    source = open_source(config, overrides).of_phase(phase)
    if evaluation and phase is not None:
        raise PeError("--eval shows the evaluation program, which has no phases", hint="leave out --eval or --phase")
    if role is not None:
        if stage not in (None, "program", "ssa") or evaluation or devices or schedule or phase:
            raise PeError("--role shows the programs of trainers and servers as they are", hint="leave out what chooses another stage")
        _role(source, role, processes, number, (only, around, radius, full), dot, svg)
        return
    if schedule:
        if stage or dot or only or around or full or evaluation or devices or radius != 1:
            raise PeError("--schedule goes with --svg and -o only", hint="leave out what chooses a graph")
        _schedule(source, svg)
        return
    draws = dot is not None or svg is not None
    # Pictures show what is run on devices, texts the program as it was written.
    stage = stage or ("multi_device" if draws else "program")
    if not draws and (only or around or (full and stage != "model")):
        raise PeError("--only, --around and --full choose what a picture shows", hint="add --dot FILE or --svg FILE")
    if stage == "model" and (only or around or evaluation or devices):
        text = "--stage model draws layers, which are the same for training, evaluation and every device"
        raise PeError(text, hint="leave out what chooses ops")
    if stage == "model":
        _model(source, dot, svg, full=full)
        return
    _show(source, stage, resources_of(source, devices), (only, around, radius, full), (dot, svg), evaluation=evaluation)


def _show(
    source: Source,
    stage: str,
    resources: Resources,
    choice: tuple[tuple[str, ...], str | None, int, bool],
    files: tuple[Path | None, Path | None],
    *,
    evaluation: bool,
) -> None:
    """Print a stage, or draw it into files."""
    from pe_cli.graph.text import describe
    from pe_cli.program.text import print_program

    if any(file is not None for file in files):
        _draw(picture_of_stage(source, stage, resources, evaluation=evaluation), choice, *files)
    elif stage == "program":
        echo(print_program(source.program(evaluation)), nl=False)
    elif stage == "plan":
        from pe_cli.execute.plan.text import describe_plan

        echo(describe_plan(plan_of(source, resources, evaluation)[1]), nl=False)
    else:
        echo(describe(_stages(source, resources, evaluation).stage(stage)), nl=False)


def _role(
    source: Source,
    role: str,
    processes: int | None,
    number: int,
    choice: tuple[tuple[str, ...], str | None, int, bool],
    dot: Path | None,
    svg: Path | None,
) -> None:
    """Print or draw the program of a trainer or server."""
    from pe_cli.program.text import print_program
    from pe_cli.session.processes.server_programs import role_program

    program = role_program(source.built, source.run, role, processes, number)
    if dot is None and svg is None:
        echo(print_program(program), nl=False)
    else:
        _draw(_picture_of_role(program, f"{source.model.name}: {role} {number}"), choice, dot, svg)


def _picture_of_role(program: Program, title: str) -> Picture:
    """Return the picture of the program of a trainer or server."""
    from pe_cli.core.types import Place
    from pe_cli.graph.compile import Purpose, compile_program
    from pe_cli.graph.picture import picture_of
    from pe_cli.session.processes.server_programs import flat

    graph = compile_program(flat(program), Purpose((Place("cpu", 0),))).stage("ssa")
    return picture_of(graph, None, title, versions=False)


def _schedule(source: Source, svg: Path | None) -> None:
    """Print the learning rates of a run, and draw them into a file."""
    from pe_cli.cli.common import number
    from pe_cli.cli.text_columns import columns
    from pe_cli.core.errors import PeError
    from pe_cli.io import atomic
    from pe_cli.io.history import Series
    from pe_cli.io.view.chart import Chart, Line, standalone
    from pe_cli.io.view.text_chart import bars
    from pe_cli.session.benchmarks.learning_rates import rates_of
    from pe_cli.session.job import Job

    if source.run is None or source.built.train is None:
        raise PeError("there is no learning rate without training", hint="name a config with a train section")
    found = rates_of(Job(source.run, built=source.built), source.phase)
    values, each = found.values, found.per_epoch
    echo(f"{source.called}: learning rate over {found.total:,} steps" + (f", {each:,} per epoch" if each else ""))
    # Nine steps at equal distances, and those with the largest and the smallest rate.
    shown = {round(i * (len(values) - 1) / 8) for i in range(9)} | {values.index(max(values)), values.index(min(values))}
    rows: list[tuple[object, ...]] = [("step", "epoch", "rate")]
    rows += [(f"{(step := found.steps[i]):,}", f"{step // each:,}" if each else "-", number(values[i])) for i in sorted(shown)]
    echo(columns(rows, right=(0, 1)))
    echo(bars(values))
    if source.run.train is not None and source.run.train.plateau is not None:
        echo("train.plateau will lower this rate when a measurement gets no better, which nobody knows before")
    if svg is not None:
        title = f"{source.called}: learning rate"
        atomic.write_text(svg, standalone(Chart(title, "learning rate", (Line("learning rate", Series(found.steps, values)),))))
        echo(f"{len(values):,} steps -> {svg}")


def _model(source: Source, dot: Path | None, svg: Path | None, *, full: bool) -> None:
    """Print the layers with what they read and make, or draw them, always by our own layout."""
    from pe_cli.cli.layers_table import rows_of
    from pe_cli.cli.text_columns import columns
    from pe_cli.graph.dot import write_dot
    from pe_cli.graph.layer_picture import LIMIT, model_picture
    from pe_cli.io import atomic
    from pe_cli.io.view.drawing import standalone_graph

    layers = {layer.key: layer.type for layer in source.model.layers}
    # A picture for a program of its own has room for everything; those for people are folded.
    limit = LIMIT if not full and (dot or svg) else None
    picture = model_picture(source.built.eval, layers, source.model.name, limit=limit)
    said = ", ".join((f"{picture.ops()} boxes", *picture.notes))
    if dot is not None:
        atomic.write_text(dot, write_dot(picture))
        echo(f"{said} -> {dot}")
    if svg is not None:
        atomic.write_text(svg, standalone_graph(picture))
        echo(f"{said} -> {svg}")
    if dot is None and svg is None:
        reads: dict[str, list[str]] = {}
        for arrow in picture.arrows:
            reads.setdefault(arrow.target, []).extend(datum.name for datum in arrow.data)
        feeds = [(name, "feed", "-", kind) for name, kind in source.built.feeds.items()]
        table: list[tuple[object, ...]] = [("layer", "type", "reads", "output"), *feeds]
        for row in rows_of(source):
            (name, made), *more = row.shown()
            table.append((name, row.type, ", ".join(reads.get(row.key, [])) or "-", made))
            table += [(name, "", "", made) for name, made in more]
        echo(f"model {source.model.name}")
        echo(columns(table, indent="  "))


def _stages(source: Source, resources: Resources, evaluation: bool) -> Stages:
    from pe_cli.core.strategy import BuildStrategy, ExecutionStrategy
    from pe_cli.execute.executor import threads_of
    from pe_cli.graph.compile import Purpose, compile_program

    strategy, checked, processes, execution, precision = BuildStrategy(), False, 1, ExecutionStrategy(), "float32"
    if source.run is not None:
        strategy, checked = source.run.build_strategy, source.run.executor.check_nan_inf
        execution, precision = source.run.exec_strategy, source.run.executor.precision
        # how many there will be changes nothing in the graph of each
        processes = 2 if source.run.executor.processes != 1 and not source.run.has_servers else 1
    threads = threads_of(resources.execution(execution), resources.places)
    purpose = Purpose(resources.places, strategy, processes, checked, threads=threads, precision=precision)
    program = source.program(evaluation)
    return compile_program(program, purpose, source.fetches(program))


def picture_of_stage(source: Source, stage: str, resources: Resources, *, evaluation: bool) -> Picture:
    """Return the picture of what a config becomes at a stage."""
    title = f"{source.model.name if evaluation else source.called}: {stage}"
    if stage == "plan":
        from pe_cli.execute.plan.picture import plan_picture

        return plan_picture(plan_of(source, resources, evaluation)[1], title)
    from pe_cli.graph.picture import picture_of

    stages = _stages(source, resources, evaluation)
    graph = stages.stage(stage)
    return picture_of(graph, _types(source, stages, graph), title, versions=stage != "program")


def _types(source: Source, stages: Stages, graph: Graph) -> Callable[[VarNode], TensorType] | None:
    """Return the types for the config's batch, all sizes known; None where only data shows them."""
    from pe_cli.core.errors import PeError
    from pe_cli.execute.batch_split import split_sizes
    from pe_cli.execute.diagnostics.estimate import batch_types
    from pe_cli.execute.lowering.types import device_types

    try:
        parts = batch_types(stages.sequences, split_sizes(source.batch_size, len(graph.places)))
        types = device_types(graph, parts)
    except PeError:
        return None
    return lambda v: types[v.device].get(v.name, graph.program.var(v.name).type)


def _draw(
    picture: Picture, choice: tuple[tuple[str, ...], str | None, int, bool], dot: Path | None, svg: Path | None
) -> None:
    """Write the files."""
    from pe_cli.graph.dot import write_dot
    from pe_cli.graph.picture_collapse import collapse_large
    from pe_cli.graph.picture_filter import around as near
    from pe_cli.graph.picture_filter import only as chosen
    from pe_cli.graph.picture_optimizer_state import fold_state
    from pe_cli.io import atomic
    from pe_cli.io.view.drawing import picture_file

    only, around, radius, full = choice
    if around:
        picture = near(picture, around, radius)
    # Around a variable first: choosing types before would cut the paths along which neighbours are found.
    if only:
        picture = chosen(picture, only)
    picture = collapse_large(fold_state(picture), full=full)
    said = ", ".join((f"{picture.ops()} boxes", *picture.notes))
    if dot is not None:
        atomic.write_text(dot, write_dot(picture))
        echo(f"{said} -> {dot}")
    if svg is not None:
        atomic.write_bytes(svg, picture_file(picture))
        echo(f"{said} -> {svg}")


def plan_of(source: Source, resources: Resources, evaluation: bool = False) -> tuple[Executor, Plan]:
    """Return the plan of a config's step for its batch size, and the executor that it belongs to."""
    from pe_cli.cli.common import numerics_of
    from pe_cli.devices.scope import Scope
    from pe_cli.execute.batch_split import split_sizes
    from pe_cli.execute.diagnostics.estimate import batch_types
    from pe_cli.execute.executor import Executor

    program = source.program(evaluation)
    run, how = source.run, numerics_of(source, resources.places[0].kind)
    executor = Executor(
        program,
        Scope(resources.places),
        build=run.build_strategy if run else None,
        execution=resources.execution(run.exec_strategy) if run else None,
        seed=how.seed,
        check_nan_inf=run is not None and run.executor.check_nan_inf,
        precision=how.precision,
        libraries=how.libraries,
        deterministic=how.deterministic,
    )
    sizes = split_sizes(source.batch_size, len(resources.places))
    parts = batch_types(executor.sequences, sizes)
    return executor, executor.plan(parts, sizes, source.fetches(program))
