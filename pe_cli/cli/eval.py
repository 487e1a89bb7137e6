"""pe eval: the metrics of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option


@click.command()
@path_argument("target")
@click.option("--split", default="eval", show_default=True, help="Data of the config: train, eval or predict.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@click.option(
    "--classes", is_flag=True, help="Of a classifier: precision and recall by class, and the confusion matrix."
)
@path_option("--confusion", metavar="FILE", help="Write the confusion matrix as CSV.")
@override_option
@json_option
def command(
    target: Path,
    split: str,
    checkpoint: Path | None,
    classes: bool,
    confusion: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a checkpoint.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Every number is the mean over all
    samples of the split.
    """
    from pe_cli.cli.common import open_trained, print_json
    from pe_cli.cli.progress import Quiet, text_of

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    metrics = job.evaluate(split)
    samples = len(job.dataset(split))
    found = None
    if classes or confusion:
        from pe_cli.session.confusion import confusion as count

        found = count(job, split)
    if found and confusion:
        from pe_cli.io.atomic import write_text

        write_text(confusion, found.to_csv())
    if as_json:
        report = {"classes": found.per_class(), "confusion": found.counts.tolist()} if found else {}
        print_json({"checkpoint": values, "split": split, "samples": samples, **metrics, **report})
        return
    click.echo(f"{split}: {text_of(metrics)}  ({samples:,} samples, {values})")
    if found and classes:
        click.echo(f"\n{found.text()}")
