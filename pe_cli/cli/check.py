"""pe check: every mistake of a config, and what it will need, before anything runs."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import Source, override_option, path_argument
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.config.error_collector import Mistakes
    from pe_cli.config.spec import DataSpec, RunSpec
    from pe_cli.core.strategy import BuildStrategy
    from pe_cli.execute.diagnostics.estimate import Estimate
    from pe_cli.kernels.cuda.compiler import Capability
    from pe_cli.program.ir import Program
    from pe_cli.session.device_choice import Resources
    from pe_cli.session.job import Job

#: Bytes to which a packed file is unpacked here at most; of one that holds more its beginning is looked at.
LOOKED = 1 << 26


@click.command()
@path_argument("config")
@override_option
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="SM",
    help="with place: cuda, compile for a compute capability such as sm_90; may be repeated "
    "[default: that of the device here, else sm_80, sm_90 and sm_100]",
)
def command(config: Path, overrides: tuple[str, ...], archs: tuple[str, ...]) -> None:
    """Report all mistakes of CONFIG and its model.

    Where there are none, print shapes, parameters and memory. Nothing is run. A data file that is not there is a warning: it
    may be there when the training starts. Of a packed file that unpacks to more than 64 MiB only the beginning is
    read, and names and shapes are compared; pe data CONFIG reads all of it. With place: cuda all kernels are
    compiled, which needs no GPU, and a table says what each of them needs on a GPU.
    """
    from pe_cli.build.model_warnings import model_warnings
    from pe_cli.cli.common import open_source
    from pe_cli.cli.cuda_kernels import capabilities
    from pe_cli.cli.layers_table import parameters_text, rows_of
    from pe_cli.cli.text_columns import columns
    from pe_cli.config.error_collector import Mistakes
    from pe_cli.core.errors import PeError
    from pe_cli.program.sparse import notes
    from pe_cli.session.observers.define import asked_for

    mistakes = Mistakes()
    source = open_source(config, overrides, mistakes)
    on_cuda = source.run is not None and source.run.executor.place == "cuda"
    if archs and not on_cuda:
        raise PeError("--arch is a compute capability of CUDA, and place is cpu", hint="add -o executor.place=cuda")
    wanted = capabilities(archs) if on_cuda else ()
    warnings = _data(source, mistakes) if source.run else []
    if source.run:
        asked_for(source.run, mistakes)
    told = _start(source, mistakes)
    mistakes.raise_all()
    rows = rows_of(source)
    echo(f"model {source.model.name}")
    feeds: list[tuple[object, ...]] = [(name, "feed", kind) for name, kind in source.built.feeds.items()]
    made = [(name, row.type if i == 0 else "", kind) for row in rows for i, (name, kind) in enumerate(row.shown())]
    echo(columns([*feeds, *made], indent="  "))
    echo(f"parameters: {parameters_text(rows)}")
    warnings += model_warnings(source.built.eval, source.model, source.built.read)
    warnings += _memory(source, mistakes)
    if on_cuda:
        warnings += _kernels(source, wanted, asked=bool(archs))
    mistakes.raise_all()
    for line in dict.fromkeys(line for program in source.built.programs or (source.built.eval,) for line in notes(program)):
        echo(f"note: {line}")
    for line in told:
        echo(f"note: {line}")
    for line in warnings:
        echo(f"warning: {line}", err=True)
    echo(f"{config}: no mistakes" + (f", {_count(warnings)}" if warnings else ""))


def _count(warnings: list[str]) -> str:
    return f"{len(warnings)} warning{'s' * (len(warnings) > 1)}"


def _data(source: Source, mistakes: Mistakes) -> list[str]:
    """Check readers and their options; where the files are there, also whether the fields fit the feeds."""
    from pe_cli.config.nodes import to_data
    from pe_cli.core.errors import ExitCode, PeError
    from pe_cli.data.registry import check_options, find_reader
    from pe_cli.program.epoch_attributes import epochs_of

    assert source.run
    absent: list[str] = []
    warnings: list[str] = []
    # Made once, and only if some data is there: a job opens files.
    job = functools.cache(lambda: _job(source))
    for name, spec in source.run.data.items():
        with mistakes.catch():
            check_options(find_reader(spec.reader, spec.reader_at), to_data(spec.options), spec.reader_at)
            missing = _absent(spec, source.run)
            absent += [f"data.{name}: no such file: {path}" for path in missing]
            # With mistakes elsewhere the programs may be incomplete, and fields would be compared with feeds that are not meant.
            if missing or mistakes:
                continue
            try:
                _fits(source, job(), name)
            # Errors of data come from files and columns; the place in the config that named them helps more.
            except PeError as error:
                if error.code == ExitCode.DATA:
                    error.at = error.at or spec.at
                raise
    if absent or mistakes or not source.run.data:
        return absent
    # Diagnoses over the beginning of a file would say things that do not hold for all of it.
    if cut := _cut_files(job()):
        for path in cut:
            said = f"{path} unpacks to more than {LOOKED >> 20} MiB: only its beginning was looked at"
            echo(f"note: {said}, pe data {source.run.path} reads all")
        return warnings
    from pe_cli.session.data.diagnostics import diagnose_data

    with mistakes.catch():
        warnings += diagnose_data(job())
    # Steps of an epoch can be counted only where a training program is there that asks for them.
    if not mistakes and any(map(epochs_of, source.built.programs)):
        with mistakes.catch():
            job().count_epochs()
    return absent + warnings


def _start(source: Source, mistakes: Mistakes) -> list[str]:
    """Return what `train.init` takes and leaves; a file that is not there yet is told."""
    section = source.run.train.init if source.run and source.run.train else None
    if section is None or source.run is None or mistakes:
        return []
    path = source.run.path.parent / section.from_
    if not path.exists():
        return [f"train.init: no such file or folder yet: {path}"]
    from pe_cli.session.training.initial_values import start_of

    lines: list[str] = []
    with mistakes.catch():
        lines += start_of(section, source.run.path.parent, source.built).lines()
    return lines


def _job(source: Source) -> Job:
    from pe_cli.core.types import Place
    from pe_cli.data.reader_context import Look
    from pe_cli.session.job import Job

    assert source.run
    # On the CPU whatever the config says: nothing is run, and no card need be here.
    job = Job(source.run, built=source.built, places=[Place("cpu", 0)])
    job.data.prepared.sources.look = Look(LOOKED)
    return job


def _cut_files(job: Job) -> list[Path]:
    """Return the packed files of which only the beginning was looked at."""
    return job.data.prepared.sources.look.cut if job.data.prepared.sources.look else []


def _absent(spec: DataSpec, run: RunSpec) -> list[Path]:
    """Return the files of this machine that a reader's options name and that are not there."""
    import os

    from pe_cli.config.nodes import ListNode, MapNode, ScalarNode
    from pe_cli.config.paths import is_url

    found: list[object] = []
    for key in ("file", "files"):
        node = spec.options.get(key)
        if isinstance(node, ScalarNode):
            found.append(node.value)
        elif isinstance(node, ListNode):
            found += [item.value for item in node.items if isinstance(item, ScalarNode)]
        elif isinstance(node, MapNode):
            found += [e.value.value for e in node.entries.values() if isinstance(e.value, ScalarNode)]
    # os.path's functions, because Path's raise for a name that is too long or has no such user in it
    paths = [run.path.parent / os.path.expanduser(value) for value in found if isinstance(value, str) and not is_url(value)]  # noqa: PTH111
    return [path for path in paths if not os.path.exists(path)]  # noqa: PTH110


def _fits(source: Source, job: Job, split: str) -> None:
    """Open the data and compare its fields with the feeds.

    Raises:
        PeError: it cannot be read, or does not fit.
    """
    from pe_cli.data.array_dataset import is_table

    opened, wishes = job.data.prepared.sources.opened(split), job.run.preparation
    # prediction may do without labels: its data is only opened
    if split == "predict":
        job.data.dataset(split)
    elif _cut_files(job) and (is_table(opened) or wishes.columns or wishes.split or wishes.sampling):
        job.data.prepared.check_names(split, job.data.sources.values())
    else:
        programs = source.built.programs if split != "eval" and source.built.phases else (source.built.eval,)
        job.data.loader(split, programs, source.batch_size)


def _kernels(source: Source, wanted: Sequence[Capability], *, asked: bool) -> list[str]:
    """Compile the kernels for CUDA and print what they take; return why that cannot be done, unless it was asked for."""
    from pe_cli.cli.cuda_kernels import show_kernels
    from pe_cli.kernels.cuda.compiler import NoCompiler

    try:
        show_kernels(source, wanted)
    except NoCompiler as error:
        if asked:
            raise
        return [f"kernels are not compiled: {error.message}"]
    return []


def _resources(source: Source) -> Resources:
    """Return what the config asks for; a number of CUDA devices even where they are not here."""
    from pe_cli.cli.common import resources_of

    executor = source.run.executor if source.run else None
    if executor is None or executor.place == "cpu":
        return resources_of(source)
    from pe_cli.core.types import Place
    from pe_cli.devices.cuda import cuda_count
    from pe_cli.session.device_choice import Resources

    here, why_not = cuda_count()
    wanted = 1 if executor.devices == "auto" else executor.devices
    if wanted > here:
        echo(f"note: planned for {wanted} cuda; {why_not or f'{here} visible'}")
    # Planned as if they were here: the memory of a step does not depend on who computes it.
    return Resources(tuple(Place("cuda", i) for i in range(wanted)), 0, f"{wanted} cuda")


def _is_settled(source: Source) -> bool:
    """Whether a config alone says how large all that a training step is fed is, so that what cannot be planned cannot be trained."""
    from pe_cli.execute.plan.dynamic_sizes import has_dynamic_sizes
    from pe_cli.graph.lod_resolution import declared_levels

    programs = source.built.programs
    # Sequences, and sizes that come from data, are as large as data makes them: memory is then a guess and no mistake.
    sequences = any(level for program in programs for level in declared_levels(program).values())
    if sequences or any(has_dynamic_sizes(program) for program in programs):
        return False
    return bool(programs) and all(-1 not in kind.shape[1:] for kind in source.built.feeds.values())


def _processes(source: Source) -> int:
    """Return how many processes sum gradients among themselves, 1 where a launcher alone says it."""
    if source.run is None or source.run.has_servers:
        return 1
    wanted = source.run.executor.processes
    return wanted if isinstance(wanted, int) else 1


def _planned(source: Source, used: Resources, programs: Sequence[Program], build: BuildStrategy | None) -> list[Estimate]:
    """Return what programs that share a scope need on each device of a process."""
    from pe_cli.cli.common import numerics_of
    from pe_cli.execute.diagnostics.estimate import beside, estimate_memory

    # The number of threads changes the plan, as each thread has scratch memory.
    threads = used.execution(source.run.exec_strategy).num_threads if source.run else 0
    how, processes = numerics_of(source, used.places[0].kind), _processes(source)
    each = [
        estimate_memory(
            p, used.places, source.batch_size, build=build, fetches=source.fetches(p), threads=threads, numerics=how, processes=processes
        )
        for p in programs
    ]
    return [beside(*estimates) for estimates in zip(*each, strict=True)]


def _memory(source: Source, mistakes: Mistakes) -> list[str]:
    """Print what each device will need; return why that cannot be told. More than the machine has is a mistake."""
    from dataclasses import replace

    from pe_cli.cli import adapted_cost
    from pe_cli.core.errors import ExitCode, PeError
    from pe_cli.devices.protocol import device
    from pe_cli.execute.plan.thread_layout import statistics_note
    from pe_cli.graph.dot import size_text
    from pe_cli.session.device_choice import check_room

    programs = source.built.programs or (source.built.eval,)
    build = source.run.build_strategy if source.run else None
    automatic = source.run is not None and source.run.executor.devices == "auto"
    try:
        used = _resources(source)
        if automatic and not (build and build.sync_batch_norm):
            for said in dict.fromkeys(filter(None, (statistics_note(program, len(used.places)) for program in programs))):
                echo(f"note: {said}")
        found = _planned(source, used, programs, build)
        for line in adapted_cost.lines(source, lambda programs: _planned(source, used, programs, build)[0].own):
            echo(f"note: {line}")
    except PeError as error:
        if error.code not in (ExitCode.DEVICE, ExitCode.USAGE):
            raise
        # The graph itself cannot be planned: where no data decides sizes, training would fail the same way.
        if error.code == ExitCode.USAGE and _is_settled(source):
            mistakes.add(error)
            return []
        return [f"memory is not planned: {error.message}"]
    processes = _processes(source)
    of = f" in each of {processes} processes" if processes > 1 else ""
    for one in found:
        echo(
            f"memory of {one.place}{of}: {size_text(one.own)}"
            f" = {size_text(one.persistable)} that stays + {size_text(one.own - one.persistable)} a step"
            f" (without sharing {size_text(one.unshared + one.carried.rooms)}), batch_size {source.batch_size}"
        )
        if one.carried.pinned:
            echo(f"pinned memory of the host, that {one.place} copies from and to: {size_text(one.carried.pinned)}")
    if processes > 1 and build is not None:
        # The same plan with each way to share: the choice is between memory and communication.
        ways = {way: _planned(source, used, programs, replace(build, reduce_strategy=way)) for way in ("AllReduce", "Reduce", "Shard")}
        said = ", ".join(f"{way} {size_text(sum(one.own for one in each))}" for way, each in ways.items())
        echo(f"memory of a process by reduce_strategy: {said}")
    with mistakes.catch():
        check_room(sum(one.carried.pinned + (one.own if device(one.place.kind).is_host else 0) for one in found))
    return []
