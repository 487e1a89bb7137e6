"""pe eval: the metrics of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.metrics.curves import ClassifierEvaluation
    from pe_cli.session.evaluation.confusion_matrix import Confusion
    from pe_cli.session.job import Job


@click.command()
@path_argument("target")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--split", default=None, help="Data of the config: train, eval, test or predict; eval when absent.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@click.option(
    "--classes", is_flag=True, help="Of a classifier: precision and recall by class or tag, and the confusion matrix."
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
    from pe_cli.session.evaluation.classifier_report import per_class
    from pe_cli.session.evaluation.classifier_report import text_of as table_of
    from pe_cli.session.evaluation.evaluator import Evaluator
    from pe_cli.session.training.epoch_lines import text_of

    if files and split:
        raise click.UsageError("--split names data of the config, and FILES are other data")
    if files:
        overrides = with_files(target, overrides, files, "predict")
    split = split or ("predict" if files else "eval")
    job, values = open_trained(target, overrides, checkpoint, Quiet(), launched=True)
    with job.group.together():
        evaluator = Evaluator(job)
        metrics = evaluator.evaluate(split)
        assert metrics is not None, "nobody asks it to stop"
        samples = len(job.data.dataset(split))
        found, judged = _classes(job, split, matrix=confusion is not None) if classes or confusion else (None, None)
    # Not before: every process has its part in what is measured above.
    if not job.group.leads:
        return
    if found and confusion:
        from pe_cli.io.atomic import write_text

        write_text(confusion, found.to_csv())
    if as_json:
        report: dict[str, object] = {"classes": found.per_class(), "confusion": found.counts.tolist()} if found else {}
        report |= {"classes": per_class(judged)} if judged else {}
        decided = {"decided": [one.to_json() for one in evaluator.counts()]} if evaluator.counts() else {}
        print_json({"checkpoint": values, "split": split, "samples": samples, **metrics, **decided, **report})
        return
    echo(f"{' '.join(map(str, files)) or split}: {text_of(metrics)}  ({samples:,} samples, {values})")
    for line in evaluator.decided():
        echo(line)
    if classes:
        echo(f"\n{found.text() if found else table_of(judged) if judged else ''}")


def _classes(job: Job, split: str, *, matrix: bool) -> tuple[Confusion | None, ClassifierEvaluation | None]:
    """Return how often classes are taken for each other; of tags, and where there is one score per row, what is decided of each.

    Raises:
        PeError: USAGE; the model is no classifier, or tags have no matrix, and one is wanted.
    """
    from pe_cli.core.errors import PeError
    from pe_cli.session.evaluation.classifier_report import classifier_of, judged
    from pe_cli.session.evaluation.confusion_matrix import confusion

    one = classifier_of(job.built.eval)
    if one is None or not one.several:
        return confusion(job, split), None
    if matrix:
        raise PeError("--confusion: a row may have several tags, so that none is taken for another", hint="--classes counts each tag")
    return None, judged(job, split)
