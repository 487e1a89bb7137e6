"""Resumes a run: finds it and its checkpoint, and checks whether the config still says the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.fitted_columns import NAME, Fitted
from pe_cli.io import checkpoint, strict_json
from pe_cli.io.checkpoint_meta import Meta
from pe_cli.io.environment import environment
from pe_cli.io.regular_files import read_regular
from pe_cli.io.run_files import CHECKPOINTS, is_run
from pe_cli.io.run_folder import RunFolder
from pe_cli.io.table_pieces import Value
from pe_cli.io.tensors import data_error
from pe_cli.session.training.averages import Averages
from pe_cli.session.training.config_diff import check_changes, config_diff
from pe_cli.session.training.state import Progress, averages_from_json

#: Packages whose versions may change what kernels compute.
_COMPILING = ("llvmlite",)


@dataclass(frozen=True)
class Resume:
    """A run that is gone on with.

    Args:
        folder: its.
        step: checkpoint to go on from; None takes the newest that is whole.
        allow_changes: whether the config may say otherwise than the run's.
    """

    folder: RunFolder
    step: int | None = None
    allow_changes: bool = False

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is one to go on from, whole or not; without one, training begins again."""
        return bool(self.folder.checkpoints.is_dir() and checkpoint.steps(self.folder.checkpoints))


@dataclass(frozen=True)
class Restored:
    """What a checkpoint holds, or the beginning where there is none.

    Args:
        arrays: values by name; of large tables in files of rows nothing is read yet.
        progress: of the loop.
        averages: in flight.
        positions: of outputs, by path in the run's folder.
        notes: sentences for the user.
    """

    arrays: Mapping[str, Value]
    progress: Progress
    averages: Averages
    positions: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()


def find_run(path: Path, allow_changes: bool = False) -> Resume:
    """Return the run that a path means.

    Args:
        path: a run's folder, or a checkpoint in it (`checkpoints/step-100`, `checkpoints/best`).
        allow_changes: see `Resume`.

    Raises:
        PeError: DATA; there is no run or no such checkpoint.
    """
    root = path.parent
    of_run = root.name == CHECKPOINTS and is_run(root.parent)
    # A folder that is no checkpoint of a run may be the run itself.
    if not of_run:
        inner = path.name == CHECKPOINTS and is_run(root)
        return Resume(RunFolder.open(root if inner else path), None, allow_changes)
    folder = RunFolder.open(root.parent)
    if path.name == "last":
        return Resume(folder, None, allow_changes)
    found = checkpoint.resolve(path)
    step = next((s for s in checkpoint.steps(root) if checkpoint.folder_of(root, s) == found), None)
    if step is None:
        raise data_error(f"{path}: no checkpoint of a run", "name the run's folder, or checkpoints/step-N in it")
    return Resume(folder, step, allow_changes)


def check_config(resume: Resume, run: RunSpec) -> list[str]:
    """Compare a config with that of the run, write it into the run's folder where it may differ, and return the differences.

    Raises:
        PeError: USAGE, it changes what the numbers mean; DATA, the run's own cannot be read.
    """
    folder = resume.folder
    model_text = _text(run.model_path)
    after = resolved_yaml(run, standalone=True), model_text
    found = config_diff((_text(folder.resolved_path), _text(folder.model_path)), after)
    check_changes(found, folder.path, resume.allow_changes)
    # Written only after the changes were allowed, so that a refused resume changes nothing.
    if found:
        folder.write_config(run.text, *after)
    return [f"changed: {change}" for change in found]


def environment_changes(folder: RunFolder) -> list[str]:
    """Return what is otherwise than where the run was trained so far, of what can change the last digits."""
    try:
        before = strict_json.loads(read_regular(folder.env_path))
    # A record that is damaged compares with nothing: no warning is better than a wrong one.
    except (OSError, ValueError):
        return []
    now = environment()
    if not isinstance(before, dict):
        return []
    found = [(key, before.get(key), now[key]) for key in ("pe", "cpu") if before.get(key) != now[key]]
    old, new = before.get("packages"), now["packages"]
    if isinstance(old, dict) and isinstance(new, dict):
        found += [(name, old.get(name), new.get(name)) for name in _COMPILING if old.get(name) != new.get(name)]
    return [f"{name} was {was}, it is {now_is}: the last digits may differ" for name, was, now_is in found]


def _text(path: Path) -> str:
    try:
        return read_regular(path).decode()
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise data_error(f"{path}: {reason}", "the run's folder is damaged: start a new run") from None


def restore(resume: Resume) -> Restored:
    """Read the checkpoint, and put aside those that come after it; only with the folder held.

    Raises:
        PeError: DATA; the checkpoint is damaged, or none of them is whole.
    """
    root = resume.folder.checkpoints
    notes: list[str] = []
    # What killed writers left is finished first, as it may be the newest checkpoint.
    checkpoint.tidy(root)
    if resume.step is not None:
        step, (arrays, meta) = resume.step, checkpoint.opened(checkpoint.folder_of(root, resume.step))
    else:
        found, damaged = checkpoint.newest_whole(root)
        if found is None and damaged:
            raise damaged[0][1]
        # Damaged ones are set aside and not removed: somebody may want to know what happened to them.
        for bad, error in damaged:
            aside = checkpoint.set_aside(root, bad, "damaged")
            notes.append(f"{error.message}; it is now {aside.name}, and an older checkpoint is used")
        if found is None:
            notes.append("there is no checkpoint yet: training begins at step 0")
            return Restored({}, Progress(), Averages(), {}, tuple(notes))
        step, arrays, meta = found
    where = str(checkpoint.folder_of(root, step))
    restored = _restored(arrays, meta, where)
    # Later checkpoints belong to a course that is given up: steps from here on would be mixed with theirs.
    for later in (s for s in checkpoint.steps(root) if s > step):
        notes.append(
            f"step {later} comes later: its checkpoint is now {checkpoint.set_aside(root, later, 'later').name}"
        )
    _mark(root, step, restored.progress.best_step)
    notes.append(f"goes on after step {step}, epoch {restored.progress.epoch}")
    return Restored(arrays, restored.progress, restored.averages, restored.positions, tuple(notes))


def read(folder: RunFolder, step: int, *, check: bool = True) -> Restored:
    """Read the checkpoint of a step, and change nothing.

    Args:
        folder: of the run.
        step: of the checkpoint.
        check: compare large tables in files of rows with their sha256.

    Raises:
        PeError: DATA; it is damaged, or not there.
    """
    place = checkpoint.folder_of(folder.checkpoints, step)
    arrays, meta = checkpoint.opened(place, check=check)
    return _restored(arrays, meta, str(place))


def fitted_of(resume: Resume) -> Fitted | None:
    """Return what the columns of the data had learned when a run was trained; None where it has no checkpoint, or no columns.

    Raises:
        PeError: DATA; it is damaged.
    """
    root = resume.folder.checkpoints
    steps = checkpoint.steps(root) if resume.step is None else [resume.step]
    # What columns have learned comes before values, because it decides about shapes.
    for step in reversed(steps):
        folder = checkpoint.folder_of(root, step)
        try:
            files = checkpoint.read_files(folder)
        except PeError:
            if step == steps[0]:
                raise
            continue  # a damaged checkpoint is told and put aside when its values are read
        return Fitted.from_files(files, str(folder)) if NAME in files else None
    return None


def _restored(arrays: Mapping[str, Value], meta: Meta, where: str) -> Restored:
    progress = Progress.from_json(meta.get("progress"), where)
    # Two places say the step; a folder that was renamed by hand says two.
    if progress.step != meta.get("step"):
        raise data_error(f"{where}: its progress is of step {progress.step}", "resume from another checkpoint")
    positions = meta.get("outputs")
    if not isinstance(positions, Mapping) or not all(_is_position(p) for p in positions.values()):
        raise data_error(f"{where}: does not say how long the run's files were", "resume from another checkpoint")
    return Restored(arrays, progress, averages_from_json(meta.get("averages"), where), positions)


def _is_position(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(v, int) and not isinstance(v, bool) and v >= 0 for v in value.values()
    )


def _mark(root: Path, step: int, best: int | None) -> None:
    """Restore the marks to what they were when the checkpoint was written."""
    checkpoint.mark(root, "last", step)
    if best is not None and checkpoint.folder_of(root, best).is_dir():
        checkpoint.mark(root, "best", best)
    else:
        checkpoint.unmark(root, "best")
