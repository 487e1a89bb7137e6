"""What both launchers do: check their arguments, start processes of a script, and end as they end."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.paddle import run_script
from pe_cli.session.launch.group import Group, Task, python

#: Seconds that processes may go on after another has failed.
SECONDS = 60.0


def script_of(parser: argparse.ArgumentParser) -> None:
    """Add the script and its arguments to a parser."""
    parser.add_argument("training_script", help="script that every process runs")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER, help="its arguments")


def hosts_of(text: str) -> list[str]:
    """Return the hosts of `host,host`.

    Raises:
        PeError: there is none, or one twice.
    """
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or len(set(found)) < len(found):
        raise PeError(f"--cluster_node_ips {text!r} names {'a host twice' if found else 'no host'}", hint="addresses with commas")
    return found


def start(given: argparse.Namespace, roles: Sequence[tuple[str, Mapping[str, str], bool]]) -> int:
    """Start the processes of this machine and wait for them; return an exit code. Their `paddle` is this package.

    Args:
        given: arguments, with script, log_dir and print_config.
        roles: of each process: its name, its environment, and whether it is a server, which ends by itself.

    Raises:
        PeError: the script or the folder of logs is not there.
    """
    script = Path(given.training_script)
    if not script.is_file():
        raise PeError(f"{script}: no such script", hint="name a Python file")
    command = [*python(), "-P", "-u", "-m", run_script.__name__, str(script), *given.training_script_args]
    if given.print_config:
        for name, environment, _ in roles:
            print(f"{name}: {' '.join(f'{k}={v}' for k, v in environment.items())}", file=sys.stderr)  # noqa: T201
    with contextlib.ExitStack() as stack:
        say = _logs(stack, given.log_dir, [name for name, _, _ in roles])
        tasks = [Task(name, command, environment, serves=serves) for name, environment, serves in roles]
        group = Group(tasks, SECONDS, (), say)
        codes = group.wait()
    if group.interrupted:
        return ExitCode.INTERRUPTED
    wrong = [(name, code) for (name, _, _), code in zip(roles, codes, strict=True) if code]
    for name, code in wrong:
        how = f"ended by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        print(f"error: {name} was {how}" if code and code < 0 else f"error: {name} {how}", file=sys.stderr)  # noqa: T201
    own = [code for _, code in wrong if code and code > 0]
    return 0 if not wrong and None not in codes else own[0] if own else ExitCode.PEER_LOST


def _logs(stack: contextlib.ExitStack, folder: str | None, names: Sequence[str]) -> Callable[[str, bool], None]:
    """Return what takes the lines of all processes: the first one's are shown, and each has a file where a folder is given."""
    files: dict[str, IO[str]] = {}
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
            for name in names:
                files[name] = stack.enter_context((Path(folder) / f"{name}.log").open("w", encoding="utf-8"))
        except OSError as error:
            raise PeError(f"--log_dir {folder}: {(error.strerror or str(error)).lower()}", hint="a folder that can be written") from None

    def say(line: str, wrong: bool) -> None:
        name, end, text = line.removeprefix("[").partition("] ") if line.startswith("[") else ("", "", "")
        known = end and name in names
        to = files.get(name if known else names[0])
        if to is not None:
            to.write((text if known else line) + "\n")
            to.flush()
        if to is None or not known:
            print(line, file=sys.stderr if wrong else sys.stdout, flush=True)

    return say


def run(main: Callable[[], int]) -> None:
    """End this process as a launcher ends."""
    try:
        sys.exit(int(main()))
    except PeError as error:
        print(error.render(), file=sys.stderr)  # noqa: T201
        sys.exit(int(error.code))
