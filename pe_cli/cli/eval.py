"""pe eval: the metrics of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo


@click.command()
@path_argument("target")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--split", default=None, help="Data of the config: train, eval, test or predict; eval when absent.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@click.option(
    "--classes", is_flag=True, help="Of a classifier: precision and recall by class, and the confusion matrix."
)
@path_option("--confusion", metavar="FILE", help="Write the confusion matrix as CSV.")
@override_option
@json_option
def command(
    target: Path,
    files: tuple[Path, ...],
    split: str | None,
    checkpoint: Path | None,
    classes: bool,
    confusion: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
) -> None:
    """Measure a checkpoint.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Numbers are means over all samples of
    the split, and metrics of the config are computed of all its samples. With FILES, the samples are those of these files, which are read
    as the training data was.
    """
    from pe_cli.cli.common import open_trained, print_json, with_files
    from pe_cli.cli.progress import Quiet
    from pe_cli.session.evaluation.evaluator import Evaluator
    from pe_cli.session.training.epoch_lines import text_of

    if files and split:
        raise click.UsageError("--split names data of the config, and FILES are other data")
    if files:
        overrides = with_files(target, overrides, files, "predict")
    split = split or ("predict" if files else "eval")
    job, values = open_trained(target, overrides, checkpoint, Quiet(), launched=True)
    with job.group.together():
        metrics = Evaluator(job).evaluate(split)
        assert metrics is not None, "nobody asks it to stop"
        samples = len(job.data.dataset(split))
        found = None
        if classes or confusion:
            from pe_cli.session.evaluation.confusion_matrix import confusion as count

            found = count(job, split)
    if not job.group.leads:
        return
    if found and confusion:
        from pe_cli.io.atomic import write_text

        write_text(confusion, found.to_csv())
    if as_json:
        report = {"classes": found.per_class(), "confusion": found.counts.tolist()} if found else {}
        print_json({"checkpoint": values, "split": split, "samples": samples, **metrics, **report})
        return
    echo(f"{' '.join(map(str, files)) or split}: {text_of(metrics)}  ({samples:,} samples, {values})")
    if found and classes:
        echo(f"\n{found.text()}")
