"""Runs the observers of a run file, each in a process of its own: one that hangs or dies loses its record, and nothing else."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.core.threads import Thread
from pe_cli.io import strict_json
from pe_cli.io.history import config_data
from pe_cli.session.observer import Observer, Start
from pe_cli.session.observers.define import About, asked_for

#: Lines that wait for an observer that is slow; later ones are lost, and that is said.
MOST_WAITING = 10_000
#: Seconds that a run's end waits for an observer to write what it has.
PARTING = 10.0
#: Bytes of what a process says that are looked at.
_TAIL = 4096


def outside(run: RunSpec, say: Callable[[str], None]) -> list[Observer]:
    """Return what tells the observers that a run file asks for; their processes begin with the training.

    Args:
        run: checked.
        say: is told of one that fails.

    Raises:
        PeError: USAGE; a name or an option is wrong, or a package is not installed.
    """
    mistakes = Mistakes()
    found = asked_for(run, mistakes)
    mistakes.raise_all()
    return [Outside(name, options.model_dump(exclude_unset=True), run, say) for name, options in found.items()]


class Outside(Observer):
    """Passes on to an observer in a process of its own, and never waits for it before the end.

    Args:
        name: of the observer.
        options: of it, as JSON values.
        run: that is observed.
        say: is told, on the main thread, that it failed.
    """

    def __init__(self, name: str, options: Mapping[str, Any], run: RunSpec, say: Callable[[str], None]) -> None:
        self.name, self._options, self._run, self._say = name, options, run, say
        self._lines: queue.Queue[str | None] = queue.Queue(MOST_WAITING)
        self._process: subprocess.Popen[str] | None = None
        self._broken = self._told = False
        self._lost = 0

    def started(self, start: Start) -> None:
        """Start the process."""
        folder = Path(start.folder).absolute()
        config = config_data(resolved_yaml(self._run, standalone=True))
        output = self._run.output
        about = About(folder.name, str(folder), config, output.tags or [], output.note or "")
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        command = [sys.executable, "-m", "pe_cli.session.observers.host"]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=self._errors, stderr=self._errors, text=True, start_new_session=True
            )
        except OSError as error:
            self._fail(f"its process cannot be started: {error}")
            return
        self._writer = Thread(target=self._write, daemon=True, name=f"observer {self.name}")
        self._writer.start()
        self._send("begin", {"name": self.name, "plugins": list(self._run.plugins), "options": self._options, "about": asdict(about)})
        self._send("started", asdict(start))

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Pass on, and say so where the observer has failed."""
        self._send("recorded", [step, epoch, dict(values)])

    def ended(self, state: str) -> None:
        """Pass on, and give it a while to write what it has."""
        if self._process is None:
            return
        self._send("ended", state)
        until = time.monotonic() + PARTING
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=PARTING)
        self._writer.join(max(0.0, until - time.monotonic()))
        try:
            code = self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._leave()
        else:
            if code:
                self._fail(self._why())
        if self._lost and not self._told:
            self._say(f"observer {self.name} was too slow: {self._lost} lines were lost")
        self._errors.close()

    def _leave(self) -> None:
        """Wait no longer: a process that has got everything may end by itself, one that takes nothing is ended."""
        assert self._process is not None
        if self._writer.is_alive():
            self._process.kill()
            self._process.wait()
            self._fail(f"it took nothing for {PARTING:g} seconds")
        elif not self._told:
            self._say(f"observer {self.name} still writes; the run does not wait for it")
        self._process.returncode = self._process.returncode or 0  # nobody waits for it

    def _send(self, what: str, told: object) -> None:
        """Put a line into the queue; on the main thread."""
        if self._process is None or self._told:
            return
        if self._broken:
            self._fail(self._why())
            return
        try:
            self._lines.put_nowait(strict_json.dumps([what, told]) + "\n")
        except queue.Full:
            self._lost += 1

    def _write(self) -> None:
        """Write lines to the process, until there are no more or it has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            with self._process.stdin as pipe:
                while (line := self._lines.get()) is not None:
                    pipe.write(line)
                    pipe.flush()
        except (OSError, ValueError):
            self._broken = True
            while self._lines.get() is not None:
                pass

    def _why(self) -> str:
        """Return the last line of what the process said."""
        size = self._errors.seek(0, 2)
        self._errors.seek(max(0, size - _TAIL))
        said = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        return said[-1].strip() if said else "its process ended"

    def _fail(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._say(f"observer {self.name} failed, the run goes on without it: {why}")
