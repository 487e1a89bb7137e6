"""pe schema: JSON Schema of configs and model files, for editors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pe_cli.cli.common import load_plugins_of, plugins_option


@click.command()
@click.option("--model", is_flag=True, help="Of model files instead of configs.")
@plugins_option
def command(model: bool, config: Path | None) -> None:
    """Print the JSON Schema of configs.

    Editors that know YAML complete and check with it: put `# yaml-language-server: $schema=FILE` into a file.
    """
    from pe_cli.cli.common import print_json

    load_plugins_of(config)
    print_json(model_schema() if model else config_schema(), indent=2)


def config_schema() -> dict[str, Any]:
    """Return the schema of a config, with the optimizers, readers, metrics and observers that there are."""
    from pe_cli.config.schema import run_schema
    from pe_cli.data import discover
    from pe_cli.metrics.define import discover as discover_metrics
    from pe_cli.optim.optimizers import OPTIMIZERS
    from pe_cli.session.observers.define import discover as discover_observers

    metrics = {name: kind.options for name, kind in discover_metrics().items()}
    observers = {name: kind.options for name, kind in discover_observers().items()}
    found = run_schema({name: made.__doc__ or "" for name, made in OPTIMIZERS.items()}, metrics, observers)
    found["$defs"]["DataSection"]["properties"]["reader"]["enum"] = sorted(discover())
    return found


def model_schema() -> dict[str, Any]:
    """Return the schema of a model file, with the layers that there are."""
    from pe_cli.cli.catalogue import layers
    from pe_cli.config import schema

    catalogue = {
        name: schema.LayerDoc(
            {key: schema.ArgDoc(a.kind, a.required, a.optional) for key, a in found.args.items()}, found.doc, found.implied
        )
        for name, found in layers().items()
    }
    return schema.model_schema(catalogue)
