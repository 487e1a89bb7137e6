"""The folder that a run leaves: what was asked, on what it ran, what happened, and what came out."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pe_cli.core.errors import PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import append_files, atomic, checkpoint, json_files, lock, strict_json
from pe_cli.io.regular_files import read_regular
from pe_cli.io.run_files import RunFiles, is_run
from pe_cli.io.tensors import data_error

State = Literal["running", "done", "failed", "stopped"]
#: What stands behind a run's name in that of its folder.
_STAMP = re.compile(r"-\d{8}-\d{6}(-\d+)?")


@dataclass(frozen=True)
class RunFolder(RunFiles):
    """A run's folder, which exists: how it is made, read, held and written."""

    #: What `status` counts the seconds of a run by: those before, and this process's clock then.
    _clock: list[float] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def create(
        cls,
        parent: Path,
        name: str,
        config_text: str,
        resolved_text: str,
        env: Mapping[str, object],
        *,
        model_text: str = "",
        now: datetime | None = None,
    ) -> RunFolder:
        """Make `<name>-<YYYYmmdd-HHMMSS>` in parent, with `-2`, `-3` ... behind it where that exists.

        Args:
            parent: created where missing.
            name: of the run; characters that are awkward in file names become `-`.
            config_text: the run file as the user wrote it.
            resolved_text: the run file with includes, overrides and defaults filled in.
            env: what `environment` returns.
            model_text: the model file.
            now: local time for the name, the present one when None.

        Raises:
            PeError: USAGE, the folder can't be written; DEVICE, the disk is full or failed.
        """
        # Numbered, because clocks may be set back: the order of runs is by number where there is one.
        atomic.make_folder(parent)
        # A folder's name is taken by creating it: two processes that start in the same second get two.
        number = 1 + max((cls(path).number() for path in parent.iterdir() if is_run(path)), default=0)
        folder = cls(_unique(parent, f"{_safe(name)}-{(now or datetime.now().astimezone()):%Y%m%d-%H%M%S}"))
        for inner in (folder.fetches, folder.graphs, folder.checkpoints):
            atomic.make_folder(inner)
        folder.write_config(config_text, resolved_text, model_text)
        folder.write_missing({**env, "number": number})
        # Last: a folder counts as a run from the moment that it has a status.
        folder.status(state="running", step=0, epoch=0)
        return folder

    def write_missing(self, env: Mapping[str, object]) -> None:
        """Write what a run has from its start, where it is not there: its process may have been killed before.

        Raises:
            PeError: USAGE, the folder can't be written; DEVICE, the disk is full or failed.
        """
        for inner in (self.fetches, self.graphs, self.checkpoints):
            atomic.make_folder(inner)
        if not self.env_path.exists():
            atomic.write_text(self.env_path, strict_json.dumps(dict(env), indent=1) + "\n")
        for stream in (self.metrics_path, self.log_path):
            if not stream.exists():
                atomic.write_text(stream, "", sync=False)

    def write_config(self, config_text: str, resolved_text: str, model_text: str) -> None:
        """Write the three files that say what is run; arguments of `create`.

        Raises:
            PeError: USAGE, the folder can't be written; DEVICE, the disk is full or failed.
        """
        atomic.write_text(self.config_path, config_text)
        atomic.write_text(self.model_path, model_text)
        atomic.write_text(self.resolved_path, resolved_text)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of an earlier run, to go on in it or to read it.

        Raises:
            PeError: DATA; there is no run folder under this path.
        """
        folder = cls(path)
        if not is_run(path):
            if path.is_file():
                raise data_error(f"{path}: a file, not the folder of a run", "a config stands in front: pe train CONFIG --resume")
            around = [entry.name for entry in path.parent.iterdir() if entry.is_dir()] if path.parent.is_dir() else []
            what = "not the folder of a run: it has no status.json" if path.is_dir() else "no such folder"
            raise data_error(f"{path}: {what}", did_you_mean(path.name, set(around) - {path.name}))
        folder.check_files()
        for place in (path, folder.fetches, folder.checkpoints):
            atomic.clean_temporaries(place)
        return folder

    def clean(self) -> None:
        """Remove what killed writers left; only with the folder held."""
        for place in (self.path, self.fetches, self.checkpoints):
            atomic.clean_temporaries(place, held=True)

    def check_files(self) -> None:
        """Refuse pipes, sockets and devices in the place of files: who reads them would wait for ever; and links that lead out.

        Raises:
            PeError: DATA; names one. USAGE; see `check_links`.
        """
        # Links first: what a link leads to would be looked at below.
        self.check_links()
        folders = [self.path, self.fetches, self.checkpoints]
        folders += self.checkpoints.iterdir() if self.checkpoints.is_dir() else ()
        # Each entry is looked at before anything opens it: to open a pipe waits for a writer.
        for path in (entry for folder in folders if folder.is_dir() for entry in folder.iterdir()):
            with contextlib.suppress(OSError):
                mode = path.stat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    raise data_error(f"{path}: neither a file nor a folder", "put the run's own file in its place")

    @classmethod
    def latest(cls, parent: Path, name: str | None = None) -> RunFolder:
        """Return the run in parent that was started last.

        Args:
            parent: folder of the runs' folders.
            name: of the run; any when None.

        Raises:
            PeError: DATA; there is none.
        """
        found: list[RunFolder] = []
        for path in parent.iterdir() if parent.is_dir() else ():
            if name is not None and not _STAMP.fullmatch(path.name.removeprefix(_safe(name))):
                continue
            if is_run(path):
                found.append(cls(path))
        if not found:
            raise data_error(f"{parent}: no run {f'of {name} ' if name else ''}in it", "start one with pe train CONFIG")
        return cls.open(max(found, key=cls.order).path)

    def number(self) -> int:
        """Return the run's number among those of its folder, 0 where nothing tells it: what was started later has a larger one."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            found = strict_json.loads(read_regular(self.env_path)).get("number")  # type: ignore[attr-defined]
            return found if isinstance(found, int) and not isinstance(found, bool) else 0
        return 0

    def order(self) -> tuple[int, str, str]:
        """Return what runs of a folder are sorted by, in the order in which they were started: clocks may have been set between them."""
        return self.number(), str(self.known_status().get("started")), self.path.name

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep other processes from training in this folder; the system lets go when this process dies.

        What its lock is known by is `lock` in status.json, so that others see at once when this process is gone.

        Raises:
            PeError: USAGE; another process holds it, it has links that lead out of it, or it can't be opened or written. DEVICE; the
                disk is full or failed.
        """
        with contextlib.ExitStack() as held:
            try:
                mark = held.enter_context(lock.locked(self.path))
            # Who holds the lock is told where the status says so; it may be damaged or of another machine.
            except BlockingIOError:
                who: object = "another one"
                with contextlib.suppress(PeError):
                    who = self.read_status().get("pid", who)
                raise PeError(
                    f"{self.path}: another process trains in this folder: {who}",
                    hint="wait for its end or stop it, or start a new run without --resume",
                ) from None
            # Again with the lock held: nobody of this machine can put a link in from now on.
            self.check_links()
            self._marked(mark)
            yield

    def _marked(self, mark: str | None) -> None:
        """Write down what the lock is known by; this is no news of the run, so `updated` and `pid` stay."""
        # A reader tells by the lock, rather than by a process number, whether the run is alive: numbers are used again.
        try:
            status = self.read_status()
        except PeError:
            return  # the next status replaces what is damaged
        if status.pop("lock", None) != mark:
            known = {} if mark is None else {"lock": mark}
            atomic.write_text(self.status_path, strict_json.dumps(status | known, indent=1) + "\n")

    def check_links(self) -> None:
        """Refuse symbolic links that lead out of the folder: a run from elsewhere may not have us read or write there.

        Raises:
            PeError: USAGE; it has one.
        """
        root = self.path.resolve()
        for parent, folders, files in os.walk(self.path):
            for path in (Path(parent, name) for name in (*folders, *files)):
                if path.is_symlink() and not path.resolve().is_relative_to(root):
                    raise PeError(
                        f"{path}: this link leads out of the run's folder, to {path.resolve()}",
                        hint="put what it points to in its place, or move the run's whole folder and link that",
                    )

    def log(self, text: str) -> None:
        """Add text to the log; each of its lines gets the time in UTC.

        Raises:
            PeError: the log can't be written.
        """
        stamp = _now()
        append_files.append_line(self.log_path, "\n".join(f"{stamp} {line}" for line in text.splitlines() or [""]))

    def metric(self, values: Mapping[str, object]) -> None:
        """Add one line of scalars; NaN and infinities are written as the strings "nan", "inf" and "-inf".

        Raises:
            PeError: the file can't be written.
        """
        append_files.append_line(self.metrics_path, strict_json.dumps(values))

    def metrics(self) -> Iterator[dict[str, object]]:
        """Yield the lines of metrics.jsonl in order; a line that a power failure tore is left out.

        Raises:
            PeError: DATA; the file can't be read.
        """
        return self.lines(self.metrics_path)

    def lines(self, path: Path) -> Iterator[dict[str, object]]:
        """Yield the objects of a file with one JSON value a line; what is torn or no object is left out.

        Raises:
            PeError: DATA; the file can't be read.
        """
        return json_files.lines(path)

    def status(
        self,
        *,
        state: State | None = None,
        step: int | None = None,
        epoch: int | None = None,
        best: object | None = None,
        warning: str | None = None,
        error: str | None = None,
    ) -> None:
        """Replace status.json; what isn't given stays as it was, `updated`, `pid` and `seconds` are filled in.

        Args:
            state: running, done, failed or stopped.
            step: steps done.
            epoch: epochs done.
            best: JSON value that describes the best checkpoint so far.
            warning: a sentence on what is wrong with the run, though it goes on; empty takes it back.
            error: what ended the run; another state than failed takes it back.

        Raises:
            PeError: USAGE, the folder can't be written; DEVICE, the disk is full or failed.
        """
        # Read again each time, so that what another process has written, such as a stop, is not lost.
        before = self.known_status() if is_run(self.path) else {}
        given = {"state": state, "step": step, "epoch": epoch, "best": best, "warning": warning, "error": error}
        after = _changed(before, {key: value for key, value in given.items() if value is not None})
        if not self._clock:
            known = before.get("seconds")
            # A monotonic clock, added to the seconds of earlier processes: the wall clock may jump.
            self._clock.extend((float(known) if isinstance(known, int | float) else 0.0, time.monotonic()))
        after |= {"pid": os.getpid(), "seconds": round(self._clock[0] + time.monotonic() - self._clock[1], 3)}
        # The old status is overwritten where the disk has no room for a second file.
        write = atomic.write_last if state == "failed" else atomic.write_text  # why it has failed should be known
        write(self.status_path, strict_json.dumps(after, indent=1) + "\n")

    def known_status(self) -> dict[str, object]:
        """Return what status.json holds; where it is damaged, what the rest of the folder says, and `damaged`: why.

        Power that is lost may leave the file empty; the run is as whole as its checkpoints are.
        """
        try:
            return self.read_status()
        except PeError as error:
            steps = checkpoint.steps(self.checkpoints) if self.checkpoints.is_dir() else []
            begun = datetime.fromtimestamp(self._begun(), UTC).isoformat(timespec="milliseconds")
            return {"state": "unknown", "step": max(steps, default=0), "epoch": 0, "started": begun, "best": None, "damaged": error.message}

    def _begun(self) -> float:
        """Return when the run began, as its oldest file tells."""
        times = []
        for path in (self.env_path, self.resolved_path, self.checkpoints):
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return min(times, default=0.0)

    def read_status(self) -> dict[str, object]:
        """Return what status.json holds.

        Raises:
            PeError: DATA; it is missing or damaged.
        """
        return json_files.mapping(self.status_path)


def _changed(before: Mapping[str, object], given: Mapping[str, object]) -> dict[str, object]:
    """Return a status with what is given, updated now; a warning or an error that no longer holds is left out."""
    now = _now()
    after = {"state": "running", "step": 0, "epoch": 0, "started": now, "best": None, **before, **given, "updated": now}
    gone = {"damaged"}
    if given.get("state", "failed") != "failed":
        gone.add("error")
    if not after.get("warning"):
        gone.add("warning")
    return {key: value for key, value in after.items() if key not in gone}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _safe(name: str) -> str:
    # ASCII alone, and short: names have to work on every file system.
    return re.sub(r"[^\w.+=-]+", "-", name, flags=re.ASCII).strip("-.")[:100] or "run"


def _unique(parent: Path, name: str) -> Path:
    for number in range(1, 10_000):
        path = parent / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
            atomic.sync_folder(parent)
        except FileExistsError:
            continue
        except OSError as error:
            raise atomic.write_error(error, path) from None
        return path
    raise PeError(f"cannot write {parent}: 9999 runs are called {name}", hint="give the run another name")


def mark_failed(path: Path, why: str) -> bool | None:
    """Write into the status of a run that says "running" why it has failed.

    Returns:
        Whether it said so; None where a living process writes it, or it can't be written.
    """
    folder = RunFolder(path)
    with contextlib.suppress(PeError, OSError):
        if folder.known_status().get("state") != "running":
            return False
        # Only with the lock: a process that is alive writes its own end.
        with folder.hold():
            folder.status(state="failed", error=why)
        return True
    return None
