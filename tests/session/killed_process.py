"""One of several processes that train, and one of which is killed: `killed_process.py RANK HOW WHEN` and the arguments of pe.

The process of that rank is killed before its WHEN-th call that changes the disk (call; the call is a write, and half is written), or WHEN
seconds after it has begun (time). With count, nobody is killed, and the process of that rank writes how many calls there were, and the
seconds from its begin to its end, to the file WHEN.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pe_cli.cli.main import run
from tests.session import kill_while_training
from tests.session.kill_while_training import harm


def kill_after(seconds: float) -> None:
    """Have another process kill this one, wherever it is then."""
    me = os.getpid()
    if os.fork() == 0:
        os.closerange(0, 1024)  # the launcher and the test wait for their ends
        time.sleep(seconds)
        if os.getppid() == me:
            os.kill(me, signal.SIGKILL)
        os._exit(0)


def main(rank: str, how: str, when: str, arguments: list[str]) -> int:
    """Train; return the exit code."""
    begin = time.monotonic()
    mine = os.environ["PMI_RANK"] == rank
    if mine and how == "time":
        kill_after(float(when))
    elif mine:
        harm("kill", 0 if how == "count" else int(when))
    code = run(arguments)
    if mine and how == "count":
        count = kill_while_training.done
        Path(when).write_text(json.dumps([count, time.monotonic() - begin]))
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4], sys.argv[4:]))
