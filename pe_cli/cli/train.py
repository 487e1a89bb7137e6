"""pe train: from a config to a run folder with metrics and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.core.errors import ExitCode, PeError

if TYPE_CHECKING:
    from pe_cli.session.job import Job
    from pe_cli.session.observer import Observer
    from pe_cli.session.train import Result


@click.command()
@path_argument("config")
@override_option
@path_option("--init", metavar="FILE", help="Start from values by name: a run, a checkpoint, .safetensors or .npz.")
@click.option(
    "--smoke", is_flag=True, help="Two small steps and one evaluation batch; makes up data that is not there."
)
@click.option("--quiet", is_flag=True, help="Print nothing but the last line.")
@click.option("--live", is_flag=True, help="Serve a page with live curves, to this machine only, while it trains.")
@click.option("--live-port", type=click.IntRange(1, 65535), metavar="PORT", help="Port of the page; a free one when absent.")
def command(
    config: Path,
    overrides: tuple[str, ...],
    init: Path | None,
    smoke: bool,
    quiet: bool,
    live: bool,
    live_port: int | None,
) -> int:
    """Train a model and write a run folder.

    The first Ctrl-C finishes the step, writes a checkpoint and exits with 75; the second stops at once.
    """
    from pe_cli.cli.progress import watch
    from pe_cli.session.job import Job
    from pe_cli.session.observer import Observers
    from pe_cli.session.train import Trainer

    if live_port is not None and not live:
        raise PeError("--live-port says where the live page is, and there is none", hint="add --live")
    watcher = watch(quiet=quiet or smoke)
    try:
        observers: list[Observer] = [watcher]
        if live:
            observers.append(_live(config, overrides, live_port, watcher.note if not quiet else _say))
        job = Job.open(config, overrides, Observers(observers), smoke=smoke)
        trainer = Trainer(job, smoke=smoke)
        job.initialise()
        if init is not None:
            _initialise(job, init, quiet or smoke)
        result = trainer.train()
    finally:
        watcher.close()
    click.echo(last_line(result, smoke=smoke))
    return ExitCode.STOPPED if result.stopped else ExitCode.DONE


def _live(config: Path, overrides: tuple[str, ...], port: int | None, say: Callable[[str], None]) -> Observer:
    """Return what serves the live page."""
    from pe_cli.cli.common import open_source
    from pe_cli.cli.run_facts import static_facts
    from pe_cli.session.live import Live

    return Live(say, static_facts(open_source(config, overrides)), port or 0)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _initialise(job: Job, file: Path, quiet: bool) -> None:
    """Write the values of a file where their names match."""
    from pe_cli.io.checkpoint import load_arrays

    arrays = load_arrays(file)
    matched = job.load(arrays, partial=True)
    if not quiet:
        total = sum(1 for _ in job.scope)
        click.echo(f"--init: {matched} of {len(arrays)} names in {file} match; the model has {total}")


def last_line(result: Result, *, smoke: bool = False) -> str:
    """Return what a run ends with: how far it came, its metrics and its folder."""
    from pe_cli.cli.progress import text_of

    word = "stopped at" if result.stopped else "smoke:" if smoke else "done:"
    metrics = text_of(result.metrics)
    return f"{word} step {result.step}, {result.seconds:.1f} s  {metrics}{'  ' if metrics else ''}-> {result.folder}"
