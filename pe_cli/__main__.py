"""The command `pe`, which is `python -m pe_cli`: signals count from its first instruction on."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import FrameType


def main() -> None:
    """Run the command line; until a command takes signals itself, SIGINT and SIGTERM end the process with exit code 130.

    They do so at once and not by an exception, which a library that is being imported could swallow, and also where a shell that
    started this in the background has SIGINT ignored. Whoever starts this with the two held back, as `env --block-signal` and
    `core.signals.held` do, loses none of those that come while Python itself starts: they count from here on.
    """
    if not hasattr(signal, "pthread_sigmask"):
        sys.stderr.write(
            "error: pe runs on Linux and macOS: this system has neither their signals nor their locks on files\n"
            "hint: on Windows, install WSL (wsl --install), and pe inside it\n"
        )
        sys.exit(5)  # ExitCode.DEVICE, whose module imports what may be absent here
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        signal.signal(number, _end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
    if "PMI_FD" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ:
        from pe_cli.collectives.process_supervisor import supervise

        supervise(_lost)
    from pe_cli.cli.main import main as command

    command()


def _lost(folder: Path, why: str) -> bool | None:
    from pe_cli.io.run_folder import mark_failed

    return mark_failed(folder, why)


def _end(number: int, frame: FrameType | None) -> None:
    del number, frame
    os.write(2, b"interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
