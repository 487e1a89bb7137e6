"""pe ops: the catalogue of layers and operators, and its reference pages."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import completer, load_plugins_of, path_option, plugins_option
from pe_cli.cli.terminal_text import echo


@click.command()
@click.argument("name", required=False, shell_complete=completer("names"))
@path_option("--write", "folder", metavar="DIR", help="Write one page per name and an index.")
@plugins_option
def command(name: str | None, folder: Path | None, config: Path | None) -> None:
    """List layers and ops, or print one whole.

    Layers are what a model file writes, ops what they are made of. Optimizers, schedules, initializers, readers, columns,
    augmentations, metrics and observers are found by their names, too, and all of them by what PyTorch, Keras and ONNX call them.
    """
    from pe_cli.cli.catalogue import index, names, page, write_pages
    from pe_cli.cli.catalogue_entries import things
    from pe_cli.cli.framework_aliases import here, instead_of
    from pe_cli.config.plugins import offering
    from pe_cli.core.errors import PeError, did_you_mean
    from pe_cli.layers.define.replacements import REPLACEMENTS

    load_plugins_of(config)
    if folder is not None:
        count = write_pages(folder)
        echo(f"{count} pages -> {folder}")
        return
    others = list(things())
    if name is None:
        lists: dict[str, list[str]] = {}
        for thing in others:
            lists.setdefault(thing.kind, []).append(thing.name)
        echo(index("\n".join(f"  {kind}: {', '.join(found)}" for kind, found in lists.items())))
        return
    known = [*names(), *(thing.name for thing in others)]
    found = [name] if name in known else here(name, known)
    if not found and (said := instead_of(name)):
        echo(f"'{name}' is no layer here: {said}")
        return
    if not found:
        package = offering(name)
        hint = f"the installed package '{package}' has it: --config FILE with plugins: [{package}] in it" if package else None
        why, instead = REPLACEMENTS.get(name, ("", ""))
        hint = hint or instead or did_you_mean(name, known) or "pe ops lists them all"
        if why:
            raise PeError(f"'{name}' of fluid.layers is no layer of a model file: {why}", hint=hint)
        raise PeError(f"there is no layer, op or type '{name}'", hint=hint)
    if found != [name]:
        echo(f"'{name}' is called {' or '.join(found)} here.\n")
    pages = [page(found[0])] if found[0] in names() else []
    echo("\n".join([*pages, *(thing.page() for thing in others if thing.name == found[0])]))
