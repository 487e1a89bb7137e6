"""pe sweep: trials with other values of a config, and which are the best."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import NEWEST, override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode

if TYPE_CHECKING:
    from pe_cli.session.sweep.record import Sweep
    from pe_cli.session.sweep.shared_sweep import Launcher



@click.command()
@path_argument("config", required=False)
@override_option
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Trials at a time; cores are divided among them.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[FOLDER]",
    help="Go on with a sweep that was stopped or killed; without FOLDER with CONFIG's newest, or a new one where there is none.",
)
@click.option(
    "--launcher",
    type=click.Choice(["mpi", "slurm"]),
    help="Share the trials with the other processes of mpiexec, or with the other tasks of a job of Slurm's.",
)
@path_option("--report", metavar="FOLDER", help="Only print what a sweep's folder holds; goes without CONFIG.")
@path_option("--html", metavar="FILE", help="With --report: also write a page with parallel coordinates and importance.")
@click.option("--quiet", is_flag=True, help="Print nothing but the table and what failed.")
def command(
    config: Path | None,
    overrides: tuple[str, ...],
    jobs: int,
    resume: str | None,
    launcher: Launcher | None,
    report: Path | None,
    html: Path | None,
    quiet: bool,
) -> int:
    """Train CONFIG with the values that its section `sweep` lists, and write the best config.

    Every trial is a run in the sweep's folder, `sweep-NAME-...` in `output.dir`, beside sweep.json with all results and best.yaml,
    which `pe train` takes. The first Ctrl-C lets the trials write checkpoints and exits with 75; --resume goes on.
    """
    if report is not None:
        # The option has a default: only its source tells whether it was given.
        of_jobs = click.get_current_context().get_parameter_source("jobs")
        if config is not None or overrides or resume is not None or launcher or quiet or of_jobs is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError("--report goes with --html only")
        return _report(report, html)
    if html is not None:
        raise click.UsageError("--html goes with --report")
    if config is None:
        context = click.get_current_context()
        # CONFIG is optional for the sake of --report; without that, the message is click's own.
        raise click.MissingParameter(ctx=context, param=next(p for p in context.command.params if p.name == "config"))
    return _sweep(config, overrides, jobs, resume, launcher, quiet)


def _sweep(config: Path, overrides: tuple[str, ...], jobs: int, resume: str | None, launcher: Launcher | None, quiet: bool) -> int:
    from pe_cli.config.load import load_run
    from pe_cli.session.sweep.record import read_sweep
    from pe_cli.session.sweep.runner import Runner
    from pe_cli.session.sweep.shared_sweep import joined
    from pe_cli.session.sweep.sweep import new_sweep, open_sweep

    run = load_run(config, overrides)
    say = _nothing if quiet else echo

    def begin() -> Sweep:
        found = None
        if resume is not None:
            found = open_sweep(run, None if resume == NEWEST else Path(resume))
            if found is None:
                say(f"{run.output.dir} holds no sweep of {run.name}: a new one begins")
        return found or new_sweep(run)

    with joined(launcher, run, begin, fresh=resume is None) as part:
        folder = part.sweep.folder
        if part.leads:
            say(f"{part.sweep.count} trials -> {folder}")
        done = Runner(run, overrides, folder, jobs, say, part.shared).train()
        sweep = read_sweep(folder)
        if part.leads:
            _show(sweep)
            if not done:
                echo(f"stopped: pe sweep {config} --resume goes on", err=True)
    if not done:
        return ExitCode.STOPPED
    return ExitCode.DONE if sweep.best is not None else next((t.code for t in sweep.trials if t.code > 0), ExitCode.DIVERGED)


def _nothing(text: str) -> None:
    """Say nothing."""


def _report(folder: Path, html: Path | None) -> int:
    from pe_cli.io import atomic
    from pe_cli.io.view.sweep_page import sweep_page
    from pe_cli.session.sweep.record import read_sweep

    sweep = read_sweep(folder)
    _show(sweep)
    if html is not None:
        page = sweep_page(folder.resolve().name, sweep.rows(), sweep.importance(), sweep.points(), sweep.by)
        atomic.write_text(html, page)
        echo(f"{len(page.encode()) / 1024:,.0f} KiB -> {html}")
    return ExitCode.DONE


def _show(sweep: Sweep) -> None:
    """Print the table, what each key explains, the best config, and what failed."""
    from pe_cli.cli.text_columns import columns
    from pe_cli.core.errors import shown
    from pe_cli.session.sweep.record import BEST

    rows = sweep.rows()
    echo(columns(rows, right=range(len(rows[0]) - 1)))
    explained = {name: share for name, share in sweep.importance().items() if share is not None}
    if explained:
        ordered = sorted(explained.items(), key=lambda pair: -pair[1])
        echo("importance (share of the variance explained): " + ", ".join(f"{shown(name)} {share:.2f}" for name, share in ordered))
    for trial in sweep.trials:
        if trial.error:
            said = trial.error.splitlines()[0].partition("error: ")
            echo(shown(f"trial {trial.number} failed: {said[2] or said[0]}"), err=True)
    if sweep.best is not None and (sweep.folder / BEST).is_file():
        word = "trials" if sweep.repeats > 1 else "trial"
        echo(f"best: {word} {sweep.best.label} -> {sweep.folder / BEST}")
