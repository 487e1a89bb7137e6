"""pe init: a first config with comments, and its model."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_argument


@click.command()
@path_argument("file", default="config.yaml", required=False)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(file: Path, force: bool) -> None:
    """Write a first config and its model.

    FILE is the config (config.yaml; in a folder that is there, that name), the model is written beside it. They train as they are.
    """
    import json
    from importlib import resources

    from pe_cli.core.errors import PeError
    from pe_cli.io import atomic

    if file.is_dir():
        file /= "config.yaml"
    model = file.with_name(f"{file.stem}_model.yaml")
    if not force:
        for path in (file, model):
            if path.exists():
                raise PeError(f"{path} is there already", hint="name another file, or add --force to replace it")
    here = resources.files("pe_cli.cli")
    config_text = here.joinpath("starter_config.yaml").read_text(encoding="utf-8")
    atomic.make_folder(file.parent)
    atomic.write_text(model, here.joinpath("starter_model.yaml").read_text(encoding="utf-8"))
    atomic.write_text(file, config_text.replace("MODEL_FILE", json.dumps(model.name)))
    click.echo(f"{file} and {model} are written.\nNext: pe check {file}, then pe train {file}")
