"""pe verify: trains a recorded run again and tells whether every bit is the same."""

from __future__ import annotations

import re
from pathlib import Path

import click

from pe_cli.cli.common import json_option, path_argument
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode


def _steps(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int | None] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d+)\.\.(\d*)", value)
    if found is None or (found[2] and int(found[2]) <= int(found[1])):
        raise click.BadParameter(f"'{value}' are no steps: write 0..100, or 100.. for all that follow", ctx, param)
    return int(found[1]), int(found[2]) if found[2] else None


@click.command()
@path_argument("run")
@click.option("--steps", metavar="A..B", callback=_steps, help="Only those after step A, of which the run has a checkpoint, up to B.")
@click.option("--quiet", is_flag=True, help="Print nothing but the verdict.")
@json_option
def command(run: Path, steps: tuple[int, int | None] | None, quiet: bool, as_json: bool) -> int:
    """Train RUN again and say whether the same bits come out.

    Metrics, checkpoints and fetched values are compared as they are computed, and nothing is written. Where a bit differs, the command
    names the first step, variable and element, the op that computes it, and what differs between this machine and the one where the
    run was trained; the exit code is 8 then.
    """
    from dataclasses import asdict

    from pe_cli.cli.common import print_json
    from pe_cli.cli.progress import watch
    from pe_cli.io.run_folder import RunFolder
    from pe_cli.session.verification.verify import verify

    watcher = watch(quiet=quiet or as_json)
    try:
        first, last = steps or (None, None)
        found = verify(RunFolder.open(run), first, last, watcher)
    finally:
        watcher.close()
    if as_json:
        print_json({"same": found.difference is None, **asdict(found)})
    else:
        seen = found.seen
        compared = (
            f"{_so_many(seen.numbers, 'number')} of metrics, {_so_many(len(seen.checkpoints), 'checkpoint')} with "
            f"{_so_many(seen.variables, 'variable')}, {_so_many(seen.fetched, 'fetched step')}"
        )
        if found.difference is None:
            echo(f"same bits: steps {found.first} to {found.last}: {compared}")
        else:
            echo(f"different: {found.difference}")
            echo(f"the same before: {compared}")
        for text in found.elsewhere:
            echo(f"note: {text}")
        if found.difference is not None and not found.elsewhere:
            echo("note: neither packages nor processor differ: look at the data, and at values that were given with --init")
    return ExitCode.DONE if found.difference is None else ExitCode.DIFFERENT


def _so_many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s'[: count != 1]}"
