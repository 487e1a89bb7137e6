"""A starter for a folder with a folder of texts per class."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.starters import table
from pe_cli.session.starters.files import Settings, Starter
from pe_cli.session.starters.guesses import Asked
from pe_cli.session.starters.names import said

LABEL = "label"


def starter(settings: Settings) -> Starter:
    """Return a starter that sorts texts, a row per file, into the classes of their folders.

    Raises:
        PeError: DATA; a text cannot be read.
    """
    source: dict[str, Any] = {"reader": "text", "folder": settings.path, "per": "file"}
    found = settings.open(source)
    if settings.target not in (None, LABEL):
        raise PeError(
            f"--target '{said(settings.target)}': a folder of texts has the target 'label'", hint="leave --target out"
        )
    if LABEL not in found.names:
        raise PeError(
            f"{settings.source} has no folders of classes",
            hint="one folder of texts per class; or name one text",
            code=ExitCode.DATA,
        )
    return table.of_table(found, source, settings, [LABEL], Asked(settings.ask))
