"""pe predict: predictions of a trained model, for files or for a split of its config."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pe_cli.session.job import Job


@click.command()
@path_argument("target")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fetch", "fetches", multiple=True, metavar="NAME", help="A variable instead of the answer; may be given again.")
@path_option(
    "--out",
    metavar="FILE",
    help="What is written: .csv, .jsonl or .npz, or a folder for predicted masks; CSV on standard output when absent.",
)
@click.option("--id", "id_column", metavar="COLUMN", help="Column that stands before the answers.")
@click.option("--raw", is_flag=True, help="Write the variables' arrays, without names of classes and units.")
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="[TAG=]P",
    help="Take the second of two classes, or tags, from this probability on. May be given again.",
)
@click.option("--split", default=None, help="Data of the config; predict where there is such data, else eval.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    target: Path,
    files: tuple[Path, ...],
    fetches: tuple[str, ...],
    out: Path | None,
    id_column: str | None,
    raw: bool,
    thresholds: tuple[str, ...],
    split: str | None,
    checkpoint: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Say what a model predicts for every row of FILES.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. FILES are tables, pictures, folders of pictures or texts,
    read as the training data was, with columns found by name; - is standard input. Without FILES, data of the config is taken.
    Classes are named, and numbers are in the units of the file; a column that the model does not read and that has another value in every
    row stands before them. With --raw, and with --fetch without FILES, arrays are written
    as they are. Only what the variables need is computed and read, so that data without labels will do.
    """
    import tempfile

    from pe_cli.cli.common import open_trained, with_files
    from pe_cli.cli.progress import Quiet

    if files and split:
        raise click.UsageError("--split names data of the config, and FILES are other data")
    if thresholds and (raw or (fetches and not files) or (out is not None and out.suffix == ".npz")):
        raise click.UsageError("--threshold is for names of classes, and arrays are written as they are")
    # Readers want files, which they may read twice; standard input can be read once.
    with tempfile.TemporaryDirectory(prefix="pe-input-") as folder:
        paths = [_standard_input(target, overrides, Path(folder)) if str(file) == "-" else file for file in files]
        if paths:
            overrides = with_files(target, overrides, paths, "predict", unlabelled=True)
        job, values = open_trained(target, overrides, checkpoint, Quiet(), launched=True)
        with job.group.together():
            # A name that there is not is told before any data is read.
            for name in fetches:
                job.variable(name)
            use = split or ("predict" if "predict" in job.run.data else "eval")
            if raw or (fetches and not files) or (out is not None and out.suffix == ".npz"):
                _arrays(job, use, fetches or tuple(job.outputs()), out, values)
            else:
                _answers(job, use, fetches, out, id_column, thresholds, values, unnamed=Path("-") in files)


def _standard_input(target: Path, overrides: tuple[str, ...], folder: Path) -> Path:
    """Write standard input to a file that the run's reader understands."""
    import sys

    from pe_cli.cli.common import config_of
    from pe_cli.config.load import load_run
    from pe_cli.core.errors import PeError
    from pe_cli.session.data.user_data import spooled, text_column
    from pe_cli.session.processes.group_choice import are_several

    run = load_run(config_of(target), overrides)
    if are_several(run):
        raise PeError("standard input is there for one process, and the launcher has started several", hint="name a file that all can read")
    return spooled(sys.stdin.buffer, folder, text_column(run))


def _help(job: Job, use: str, names: Sequence[str]) -> None:
    """Do this process's share of what the first one writes."""
    from pe_cli.session.evaluation.evaluator import Evaluator

    # Every process computes its part of a batch, so those that write nothing have to take the same steps.
    for _ in Evaluator(job).predict(use, names):
        pass


def _arrays(job: Job, use: str, fetches: tuple[str, ...], out: Path | None, values: str) -> None:
    """Write variables as they are."""
    from pe_cli.core.errors import PeError
    from pe_cli.io.fetches import open_writer
    from pe_cli.session.evaluation.evaluator import Evaluator

    if out is None:
        raise PeError("arrays need a file", hint="add --out FILE, which ends in .npz, .csv or .jsonl")
    program = job.built.eval
    by_sample = [name for name in fetches if program.var(job.variable(name)).shape[:1] == (-1,)]
    names, rows = list(dict.fromkeys(fetches)), 0
    if not job.group.leads:
        _help(job, use, names)
        return
    with open_writer(out) as writer:
        for step, batch in enumerate(Evaluator(job).predict(use, names)):
            writer.write(step, batch)
            rows += len(batch[by_sample[0]]) if by_sample else 1
    echo(f"{rows:,} {'samples' if by_sample else 'batches'} of {use}, {values} -> {out}")


def _answers(
    job: Job,
    use: str,
    fetches: tuple[str, ...],
    out: Path | None,
    id_column: str | None,
    thresholds: tuple[str, ...],
    values: str,
    *,
    unnamed: bool,
) -> None:
    """Write what the outputs mean, a row per sample."""
    from pe_cli.io.row_output import row_writer
    from pe_cli.session.data.row_ids import left_out, row_ids, superfluous
    from pe_cli.session.evaluation.evaluator import Evaluator
    from pe_cli.session.evaluation.output_meaning import answers, said
    from pe_cli.session.evaluation.predicted_masks import write_masks
    from pe_cli.session.evaluation.threshold_option import with_thresholds

    meant = with_thresholds(answers(job, fetches), thresholds)
    names = list(dict.fromkeys(name for answer in meant for name in answer.variables))
    if not job.group.leads:
        _help(job, use, names)
        return
    if out is not None and (not out.suffix or out.is_dir()):
        echo(f"{write_masks(job, use, meant, out):,} masks, {values} -> {out}")
        return
    ids = row_ids(job, use, id_column, unnamed=unnamed)
    spare = [name for name in superfluous(job, use, unnamed=unnamed) if name not in ids]
    if spare:
        listed = ", ".join(spare[:10]) + (f" and {len(spare) - 10} more" if len(spare) > 10 else "")
        echo(f"note: the model does not read {listed}", err=True)
    for sentence in left_out(job, use):
        echo(f"note: {sentence}", err=True)
    rows = 0
    with row_writer(out) as write:
        for batch in Evaluator(job).predict(use, names):
            found = said(meant, batch)
            count = len(next(iter(found.values())))
            write({**{name: of(rows, rows + count) for name, of in ids.items()}, **found})
            rows += count
    if out is not None:
        echo(f"{rows:,} rows, {values} -> {out}")
