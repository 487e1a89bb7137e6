"""Which checkpoint the folder of a run means to who uses its model: the newest, or the best where the config says so."""

from __future__ import annotations

from pathlib import Path

from pe_cli.io.checkpoint import folder_of, resolve
from pe_cli.io.checkpoint_folder import marked
from pe_cli.io.history import config_data, read_limited, value_at
from pe_cli.io.run_files import RunFiles


def used(path: Path) -> Path:
    """Return the checkpoint that a path means, as `resolve` does; the folder of a run with `best: {use: true}` means its best one.

    Raises:
        PeError: DATA; there is no checkpoint.
    """
    found = resolve(path)
    root = found.parent
    if root.parent != path:
        return found
    config = config_data(read_limited(RunFiles(path).resolved_path))
    if value_at(config, "output", "checkpoint", "best", "use") is not True:
        return found
    best = marked(root, "best")
    folder = found if best is None else folder_of(root, best)
    return folder if folder.is_dir() else found
