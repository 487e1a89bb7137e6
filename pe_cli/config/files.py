"""Text from files, with errors that point at what named the file."""

from __future__ import annotations

from pathlib import Path

from pe_cli.config.nodes import MAX_BYTES
from pe_cli.config.parse import decode
from pe_cli.core.errors import PeError, Span, did_you_mean


def read_text(path: Path, what: str, at: Span | None = None) -> str:
    """Return a file's text.

    Args:
        path: the file.
        what: names it in errors: "config", "model".
        at: place in another file that asked for it, which may not name a pipe or a device; who reads one may wait for ever.

    Raises:
        PeError: missing, unreadable, no regular file, too large or not UTF-8.
    """
    try:
        if path.is_dir():
            raise PeError(f"{what} {path} is a folder, not a file", at=at, hint="name the file in it")
        if not path.exists():
            close = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else None
            raise PeError(f"there is no {what} file {path}", at=at, hint=close or "check the path")
        if at is not None and not path.is_file():
            raise PeError(f"{what} {path} is neither a file nor a folder", at=at, hint="name a file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise PeError(
            f"cannot read {what} {path}: {reason}", at=at, hint="check the path and its permissions"
        ) from None
    if len(raw) > MAX_BYTES:
        raise PeError(f"{what} {path} has more than {MAX_BYTES} bytes", at=at, hint="is this the right file?")
    return decode(raw, str(path))
