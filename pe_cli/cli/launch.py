"""pe launch: the processes of one training, here or on other machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode, PeError

if TYPE_CHECKING:
    from pe_cli.config.spec import RunSpec
    from pe_cli.session.launch.cluster_environment import Machine


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("-n", "count", type=click.IntRange(1, 4096), help="Number of processes, servers among them; what fits when absent.")
@click.option("--nodes", type=click.IntRange(1, 4096), metavar="N", help="Machines of --hosts or of the job; all when absent.")
@click.option("--per-node", type=click.IntRange(1, 4096), metavar="N", help="Processes on each machine.")
@click.option(
    "--hosts",
    metavar="FILE|NAMES",
    help="Machines: names with commas, or a file with one on each line; NAME, NAME:SLOTS or, in a file, NAME slots=SLOTS.",
)
@click.option(
    "--ssh", default="ssh", show_default=True, metavar="COMMAND", help="With --hosts: what runs a command on a machine: ssh HOST COMMAND."
)
@click.option("--mpiexec", default="", metavar="COMMAND", help="The launcher of MPI, with options of its own.")
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=0,
    show_default=True,
    metavar="K",
    help="Go on from the last checkpoint up to K times when a process is lost, with those that are left.",
)
@click.option(
    "--elastic",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Read from FILE how many processes there are, or machines as of --hosts; when it changes, as many go on from a checkpoint.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be started, and which variables and options that goes by.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True, metavar="CONFIG [OPTIONS OF PE TRAIN]...")
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    count: int | None,
    nodes: int | None,
    per_node: int | None,
    hosts: str | None,
    ssh: str,
    mpiexec: str,
    restarts: int,
    elastic: Path | None,
    dry_run: bool,
    arguments: tuple[str, ...],
) -> int:
    """Start the processes that train one model: as many as fit to where this is, in the way that is used there.

    On a machine one process takes all cores, and one takes each card; with --hosts, mpiexec or ssh starts them; in a script of sbatch or
    a shell of salloc, srun; under srun, in an indexed Job of Kubernetes and with the variables of torchrun, processes meet; under mpiexec
    they know each other. What follows CONFIG goes to pe train as it is.
    """
    import os
    import shlex

    from pe_cli.session.launch.cluster_environment import find_cluster_environment
    from pe_cli.session.launch.elastic import Elastic
    from pe_cli.session.launch.hosts import hosts_of
    from pe_cli.session.launch.launch import Launch, described, launch
    from pe_cli.session.launch.plan import Wanted, plan

    run = _run(arguments)
    machines, file = hosts_of(hosts) if hosts is not None else ([], None)
    # Split as a shell does: `ssh -p 2222` is a command with options.
    words = shlex.split(ssh)
    if not words:
        raise PeError("--ssh is empty", hint="ssh, or another command that takes a host and a command")
    machine = _machine(run)
    around = find_cluster_environment(os.environ, machine)
    wanted = Wanted(count, nodes, per_node, machines)
    follows = None
    if elastic is not None:
        if count is not None or hosts is not None:
            raise click.UsageError("--elastic says what -n and --hosts say: leave these out")
        follows = Elastic(elastic, wanted, lambda now: plan(run, now, around, machine), lambda line: echo(f"note: {line}", err=True))
    made = plan(run, wanted, around, machine) if follows is None else follows.plan
    rest, goes_on = _apart(list(arguments))
    # A file with slots can be handed to mpiexec as it is, unless the options change what it says.
    kept = file if nodes is None and per_node is None else None
    wish = Launch(run, rest, made, around, kept, words, shlex.split(mpiexec), restarts, goes_on, follows)
    if dry_run:
        echo("\n".join(described(wish)))
        return ExitCode.DONE
    if made.crowd:
        echo(f"note: {made.crowd}", err=True)
    return launch(wish, lambda line, wrong: echo(line, err=wrong))


def _run(arguments: tuple[str, ...]) -> RunSpec:
    """Return the config that the options of pe train name."""
    from pe_cli.cli import train
    from pe_cli.cli.common import config_of
    from pe_cli.config.load import load_run

    # By the command's own parser, so that whatever pe train accepts is read the same way here.
    given = train.command.make_context("pe train", list(arguments)).params
    resume, config = given["resume"], given["config"]
    if config is None and resume is None:
        raise click.UsageError("name a config, or a run after --resume")
    if given["folds"] is not None:
        raise PeError("--folds starts processes of its own", hint="pe train --folds K CONFIG")
    return load_run(config if config is not None else config_of(Path(resume)), given["overrides"])


def _machine(run: RunSpec) -> Machine:
    """Return what of this machine decides how processes are started; cards are counted where the run wants some."""
    import socket

    from pe_cli.core.limits import usable_cores
    from pe_cli.session.launch.cluster_environment import Machine
    from pe_cli.session.launch.mpi_launcher import mpi_here

    cards = 0
    if run.executor.place == "cuda":
        from pe_cli.devices.cuda_driver import device_count

        cards = device_count()
    return Machine(usable_cores(), cards, mpi_here(), socket.getfqdn() if "." not in socket.gethostname() else socket.gethostname())


def _apart(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return the arguments without those that say where to begin, and those."""
    # Where to begin holds for the first start alone; a restart begins at the last checkpoint.
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
            # --resume may stand without a value: a word that begins with a dash is the next option.
            if more and (takes[name] or not arguments[i + 1].startswith("-")):
                i += 1
                begin.append(arguments[i])
        i += 1
    return rest, begin
