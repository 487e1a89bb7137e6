"""pe train: from a config to a run folder with metrics and checkpoints, and on from where a run was stopped."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import NEWEST, override_option, path_argument, path_option, start_override
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.kernels.compiler.target import bfloat16_unit

if TYPE_CHECKING:
    from pe_cli.config.spec import RunSpec
    from pe_cli.session.job import Job
    from pe_cli.session.observer import Observer
    from pe_cli.session.training.resume import Resume


def _seconds(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Return a time in seconds: a number, or one with s, m or h."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", value)
    if found is None or float(found[1]) <= 0:
        raise click.BadParameter(f"'{value}' is no time: write 90, 90s, 15m or 1.5h", ctx, param)
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


@click.command()
@path_argument("config", required=False)
@override_option
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[RUN]",
    help="Go on with a run from its last checkpoint, or from the one that RUN names; without RUN with CONFIG's newest run, "
    "or a new one where there is none. Without CONFIG the run's own is used.",
)
@click.option("--allow-changes", is_flag=True, help="With --resume: also with a config that changes what is computed.")
@click.option(
    "--max-time",
    metavar="TIME",
    callback=_seconds,
    help="Stop after so long (90s, 15m, 2h) with a checkpoint; exit code 75.",
)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    help="Stop after so many steps of this call with a checkpoint; exit code 75.",
)
@path_option("--init", metavar="FILE", help="Start from values by name: a run, a checkpoint, .safetensors, .npz or .onnx; as train.init.")
@click.option(
    "--smoke", is_flag=True, help="Two small steps and one evaluation batch; makes up data that is not there."
)
@click.option(
    "--folds",
    type=click.IntRange(2, 100),
    metavar="K",
    help="Divide data.source into K parts, train K runs that each evaluate with another part, and report mean and deviation.",
)
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="With --folds: runs at a time.")
@click.option("--quiet", is_flag=True, help="Print nothing but the last line.")
@click.option("--live", is_flag=True, help="Serve a page with live curves, to this machine only, while it trains.")
@click.option(
    "--live-port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the page; a free one when absent."
)
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    config: Path | None,
    overrides: tuple[str, ...],
    resume: str | None,
    allow_changes: bool,
    max_time: float | None,
    max_steps: int | None,
    init: Path | None,
    smoke: bool,
    folds: int | None,
    jobs: int,
    quiet: bool,
    live: bool,
    live_port: int | None,
) -> int:
    """Train a model and write a run folder, or go on with one.

    The first Ctrl-C finishes the step, writes a checkpoint and exits with 75; the second stops at once.
    """
    from pe_cli.cli.progress import watch
    from pe_cli.kernels.compiler.worker_processes import start_early
    from pe_cli.session.job import Job
    from pe_cli.session.observer import Observers
    from pe_cli.session.processes.trainer_choice import trainer_of
    from pe_cli.session.training.stop import Limits

    _check_options(config, resume, allow_changes, init, smoke)
    overrides += start_override(init)
    if live_port is not None and not live:
        raise PeError("--live-port says where the live page is, and there is none", hint="add --live")
    path = _config(config, resume)
    if folds is not None:
        if resume is not None or init is not None or smoke or live or max_time is not None or max_steps is not None:
            raise click.UsageError("--folds goes with -o, --jobs and --quiet only")
        return _folds(path, overrides, folds, jobs, quiet)
    # Where no kernel is kept yet, processes that compile start now, while config and data are read.
    start_early()
    watcher = watch(quiet=quiet or smoke)
    try:
        observers = Observers([watcher])
        job = Job.open(path, overrides, observers, smoke=smoke, join=True)
        # A parameter server has no part in training; its work ends when the last trainer does.
        if job.run.has_servers and _serve(job):
            return ExitCode.DONE
        # One page for all processes, served by the one that leads.
        if live and job.group.leads:
            observers.members.append(_live(path, overrides, live_port, watcher.note if not quiet else _say))
        with job.group.together():
            say = job.note if job.group.leads else _nothing
            if job.run.sweep is not None:
                say("the config's sweep is left out: pe sweep tries its values, pe train trains the config as it is")
            if job.run.executor.precision == "bf16" and job.places[0].kind == "cpu" and not bfloat16_unit():
                say(
                    "precision: bf16 takes less memory here, not less time: products are of float32, as this processor has none of "
                    "bfloat16 that are faster (AMX, or AVX512-BF16 from Zen 4 on)"
                )
            going_on = None if resume is None else _run_of(job.run, resume, allow_changes, say)
            trainer = trainer_of(job, smoke=smoke, resume=going_on if job.group.leads else None, limits=Limits(max_time, max_steps))
            # Values of train.init are taken only where no checkpoint has better ones.
            given = job.initialise(fresh=going_on is None or not going_on.has_checkpoint)
            result = trainer.train(given=given)
    finally:
        watcher.close()
    if job.group.leads:
        echo(result.line())
    # A launcher may end all processes when one leaves with another exit code than 0: the leading one needs time to end first.
    elif result.stopped:
        job.group.linger()
    return ExitCode.STOPPED if result.stopped else ExitCode.DONE


def _serve(job: Job) -> bool:
    """Do the work of a parameter server; return whether this process is one."""
    from pe_cli.session.processes.server_roles import ServerGroup
    from pe_cli.session.processes.server_training import run_server

    if not isinstance(job.group, ServerGroup):
        return False
    with job.group.together():
        run_server(job.run, job.built, job.group)
    return True


def _folds(config: Path, overrides: tuple[str, ...], count: int, jobs: int, quiet: bool) -> int:
    """Train every fold and say what came of them; the first that failed gives its exit code to the whole."""
    from pe_cli.cli.text_columns import columns
    from pe_cli.config.load import load_run
    from pe_cli.session.evaluation.cross_validation import train_folds

    found = train_folds(load_run(config, overrides), overrides, count, jobs, (lambda text: None) if quiet else click.echo)
    echo(columns(found.rows(), right=range(1, 100)))
    echo(f"{len(found.good)} of {count} folds -> {found.folder}")
    for fold in found.folds:
        if fold.error:
            echo(f"fold {fold.number} failed: {fold.error}", err=True)
    return next((fold.code for fold in found.folds if fold.error), ExitCode.DONE)


def _live(config: Path, overrides: tuple[str, ...], port: int | None, say: Callable[[str], None]) -> Observer:
    """Return the server of the live page."""
    from pe_cli.cli.common import open_source
    from pe_cli.cli.run_facts import static_facts
    from pe_cli.session.live_report import Live

    return Live(say, static_facts(open_source(config, overrides)), port or 0)


def _say(text: str) -> None:
    echo(text, err=True)


def _check_options(
    config: Path | None, resume: str | None, allow_changes: bool, init: Path | None, smoke: bool
) -> None:
    """Refuse options that contradict each other.

    Raises:
        click.UsageError: some do.
    """
    if config is None and resume in (None, NEWEST):
        if resume:
            raise click.UsageError("name a config, or a run after --resume")
        ctx = click.get_current_context()
        raise click.MissingParameter(ctx=ctx, param=next(p for p in ctx.command.params if p.name == "config"))
    if resume is not None and (init is not None or smoke):
        raise click.UsageError(f"--resume and {'--smoke' if smoke else '--init'} can't be used together")
    if allow_changes and resume is None:
        raise click.UsageError("--allow-changes goes with --resume")


def _config(config: Path | None, resume: str | None) -> Path:
    """Return the config: the one that is named, or that of the run."""
    from pe_cli.cli.common import config_of

    if config is not None:
        return config
    assert resume is not None
    return config_of(Path(resume))


def _nothing(text: str) -> None:
    """Say nothing: the leading process does."""


def _run_of(run: RunSpec, resume: str, allow_changes: bool, say: Callable[[str], None]) -> Resume | None:
    """Return the run to go on with; None where a config has none yet."""
    from pe_cli.io.run_folder import RunFolder
    from pe_cli.session.training.resume import Resume, find_run

    if resume != NEWEST:
        return find_run(Path(resume), allow_changes)
    try:
        return Resume(RunFolder.latest(Path(run.output.dir), run.name), None, allow_changes)
    except PeError as error:
        say(f"{error.message}: a new run begins")
        return None
