"""pe ops: the catalogue of layers and operators, and its reference pages."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import completer, path_option
from pe_cli.cli.say import echo


@click.command()
@click.argument("name", required=False, shell_complete=completer("names"))
@path_option("--write", "folder", metavar="DIR", help="Write one page per name and an index.")
def command(name: str | None, folder: Path | None) -> None:
    """List layers and ops, or print one whole.

    Layers are what a model file writes, ops what they are made of.
    """
    from pe_cli.cli.catalogue import index, names, page, write_pages
    from pe_cli.core.errors import PeError, did_you_mean

    if folder is not None:
        count = write_pages(folder)
        echo(f"{count} pages -> {folder}")
    elif name is None:
        echo(index())
    elif name in names():
        echo(page(name))
    else:
        raise PeError(f"there is no layer or op '{name}'", hint=did_you_mean(name, names()) or "pe ops lists them all")
