"""Processes of a job that are copies of one: it imports what all need, which takes longer than their work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_copies(
    script: str, roles: Sequence[tuple[Mapping[str, str], Sequence[object]]], seconds: float = 90.0
) -> tuple[list[int], list[float]]:
    """Run a script in a process for each role, side by side.

    Args:
        script: run as `__main__`.
        roles: variables of its environment beside this one's, and its arguments.
        seconds: what then still runs is killed.

    Returns:
        Exit code of each, and when it ended, in seconds; all end before this returns.

    Raises:
        subprocess.TimeoutExpired: they take longer.
    """
    job = json.dumps({"script": script, "roles": [[dict(given), list(map(str, arguments))] for given, arguments in roles]})
    command = [sys.executable, "-m", "tests.paddle.forked_processes"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as first:
        try:
            said, _ = first.communicate(job, timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(first.pid, signal.SIGKILL)
            raise
    ended = json.loads(said)
    return [code for code, _ in ended], [at for _, at in ended]


def main() -> None:
    """Import, start a copy for each role, and write down how they have ended."""
    job = json.load(sys.stdin)
    import pe_cli.execute.executor
    import pe_cli.paddle.fluid  # noqa: F401 - the copies have it

    copies = [_copy(job["script"], *role) for role in job["roles"]]
    ended = {}
    for _ in copies:
        copy, status = os.wait()
        ended[copy] = os.waitstatus_to_exitcode(status), time.monotonic()
    sys.stdout.write(json.dumps([ended[copy] for copy in copies]))


def _copy(script: str, variables: Mapping[str, str], arguments: Sequence[str]) -> int:
    """Return the number of a copy of this process that runs the script; what it prints goes to the standard errors."""
    copy = os.fork()
    if copy:
        return copy
    code = 1
    try:
        os.dup2(2, 1)
        os.environ.update(variables)
        sys.argv = ["-c", *arguments]
        exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as Python does at the end of a process
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
