"""pe launch: the processes of one training, here or on other machines."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import PeError


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-n", "count", type=click.IntRange(1, 4096), required=True, help="Number of processes, servers among them.")
@path_option("--hosts", metavar="FILE", help="Machines, one on each line: NAME, NAME:SLOTS or NAME slots=SLOTS. This one when absent.")
@click.option(
    "--ssh", default="ssh", show_default=True, metavar="COMMAND", help="With --hosts: what runs a command on a machine: ssh HOST COMMAND."
)
@click.option("--mpiexec", default="", metavar="COMMAND", help="With mode: collective: the launcher of MPI, with options of its own.")
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="K",
    help="Go on from the last checkpoint up to K times when a process is lost, with those that are left.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CONFIG [OPTIONS OF PE TRAIN]...")
def command(
    count: int, hosts: Path | None, ssh: str, mpiexec: str, restarts: int, arguments: tuple[str, ...]
) -> int:
    """Start N processes that train one model as CONFIG's `distributed` says.

    With mode: parameter_server the processes are started here, or by ssh on the machines of --hosts, and need no MPI. With mode:
    collective mpiexec starts them, which gets --hosts as its own host file. What follows CONFIG goes to pe train as it is.
    """
    import shlex

    from pe_cli.cli import train
    from pe_cli.cli.common import config_of
    from pe_cli.config.load import load_run
    from pe_cli.session.launch.hosts import read_hosts
    from pe_cli.session.launch.launch import Launch, launch

    given = train.command.make_context("pe train", list(arguments)).params
    resume, config = given["resume"], given["config"]
    if config is None and resume is None:
        raise click.UsageError("name a config, or a run after --resume")
    if given["folds"] is not None:
        raise PeError("--folds starts processes of its own", hint="pe train --folds K CONFIG")
    found = load_run(config if config is not None else config_of(Path(resume)), given["overrides"])
    machines = read_hosts(hosts) if hosts is not None else []
    words = shlex.split(ssh)
    if not words:
        raise PeError("--ssh is empty", hint="ssh, or another command that takes a host and a command")
    rest, goes_on = _apart(list(arguments))
    wish = Launch(found, rest, count, machines, hosts, words, shlex.split(mpiexec), restarts, goes_on)
    return launch(wish, lambda line, wrong: echo(line, err=wrong))


def _apart(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without those that say where to begin, and those."""
    rest: list[str] = []
    begin: list[str] = []
    takes = {"--resume": False, "--init": True}
    i = 0
    while i < len(arguments):
        name = arguments[i].partition("=")[0]
        if name not in takes:
            rest.append(arguments[i])
        else:
            begin.append(arguments[i])
            more = i + 1 < len(arguments) and "=" not in arguments[i]
            if more and (takes[name] or not arguments[i + 1].startswith("-")):
                i += 1
                begin.append(arguments[i])
        i += 1
    return rest, begin
