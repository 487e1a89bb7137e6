"""pe predict: values of variables for every sample of a split, as a file."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import override_option, path_argument, path_option


@click.command()
@path_argument("target")
@click.option(
    "--fetch", "fetches", multiple=True, required=True, metavar="NAME", help="A variable; may be given again."
)
@path_option("--out", required=True, metavar="FILE", help="What is written: .npz, .csv or .jsonl.")
@click.option("--split", default=None, help="Data of the config; predict where there is such data, else eval.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(
    target: Path,
    fetches: tuple[str, ...],
    out: Path,
    split: str | None,
    checkpoint: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Compute variables for every sample.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Only what the variables need is computed
    and read, so that data without labels will do for a probability.
    """
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet
    from pe_cli.io.fetches import open_writer

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    for name in fetches:
        job.variable(name)
    use = split or ("predict" if "predict" in job.run.data else "eval")
    block = job.built.eval.global_block()
    by_sample = [name for name in fetches if block.var(job.variable(name)).shape[:1] == (-1,)]
    rows = 0
    with open_writer(out) as writer:
        for step, batch in enumerate(job.predict(use, list(dict.fromkeys(fetches)))):
            writer.write(step, batch)
            rows += len(batch[by_sample[0]]) if by_sample else 1
    click.echo(f"{rows:,} {'samples' if by_sample else 'batches'} of {use}, {values} -> {out}")
