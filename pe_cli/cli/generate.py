"""pe generate: continues a text with a trained language model."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo


@click.command()
@path_argument("target")
@click.option("--prompt", required=True, metavar="TEXT", help="Text to go on with; - reads it from standard input.")
@click.option("--tokens", type=click.IntRange(1, 10_000_000), default=200, show_default=True, help="How many to add.")
@click.option(
    "--temperature", type=click.FloatRange(min=0), default=1.0, show_default=True,
    help="Below 1 probable tokens are preferred; 0 takes the most probable one, always.",
)  # fmt: skip
@click.option("--top-k", type=click.IntRange(min=1), default=None, help="Draw from so many of the most probable tokens.")
@click.option(
    "--top-p", type=click.FloatRange(0, 1, min_open=True), default=None,
    help="Draw from the fewest tokens that have this share of the probability.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the draws: the same seed gives the same text.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    target: Path,
    prompt: str,
    tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    seed: int,
    checkpoint: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Go on with a text, token by token, and print it.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. The model was trained on blocks of tokens (reader text),
    and its tokenizer comes from the checkpoint: no data is read. With values that know no data, such as params.safetensors of pe import,
    it is that of the config's training data. The prompt is printed first. A model sees as many tokens as a block has;
    of a longer text, the last ones.
    """
    import math

    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet
    from pe_cli.core.errors import PeError
    from pe_cli.session.evaluation.text_generation import Generator, Sampling

    if not (math.isfinite(temperature) and (top_p is None or math.isfinite(top_p))):
        raise PeError("--temperature and --top-p are finite numbers")
    text = _standard_input() if prompt == "-" else prompt
    job, _ = open_trained(target, overrides, checkpoint, Quiet())
    generator = Generator(job)
    seen = generator.encode(text)
    unknown = generator.unknown(seen)
    if unknown:
        of = f"{unknown:,} of the prompt's {len(seen):,} tokens"
        echo(f"note: training never saw {of}", err=True)
    if generator.last_alone and len(seen) < generator.length:
        said = f"the model answers for blocks of {generator.length:,} tokens, and padding stands before the prompt's {len(seen):,}"
        echo(f"note: {said}: a longer prompt is closer to what it learned", err=True)
    echo(text, nl=False)
    for piece in generator.generate(seen, tokens, Sampling(temperature, top_k, top_p, seed)):
        echo(piece, nl=False)
    echo()


def _standard_input() -> str:
    """Return standard input without the end of its last line.

    Raises:
        PeError: DATA; it is no UTF-8, or longer than a prompt may be.
    """
    import sys

    from pe_cli.core.errors import ExitCode, PeError
    from pe_cli.session.data.user_data import MOST_INPUT

    data = sys.stdin.buffer.read(MOST_INPUT + 1)
    if len(data) > MOST_INPUT:
        raise PeError(f"standard input has more than {MOST_INPUT} bytes", hint="give a shorter prompt", code=ExitCode.DATA)
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise PeError(
            f"standard input is no UTF-8: byte {error.start + 1} is 0x{data[error.start]:02x}",
            hint="convert it: iconv -f latin1 -t utf-8",
            code=ExitCode.DATA,
        ) from None
