"""pe eval: the metrics of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option


@click.command()
@path_argument("target")
@click.option("--split", default="eval", show_default=True, help="Data of the config: train, eval or predict.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
@json_option
def command(target: Path, split: str, checkpoint: Path | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """Measure a checkpoint.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Every number is the mean over all
    samples of the split.
    """
    from pe_cli.cli.common import open_trained, print_json
    from pe_cli.cli.progress import Quiet, text_of

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    metrics = job.evaluate(split)
    assert metrics is not None, "nobody asks it to stop"
    if as_json:
        print_json({"checkpoint": values, "split": split, "samples": len(job.dataset(split)), **metrics})
    else:
        click.echo(f"{split}: {text_of(metrics)}  ({len(job.dataset(split)):,} samples, {values})")
