"""pe serve: answers of a trained model over HTTP."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo


@click.command()
@path_argument("target")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at; another one serves other machines.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: a free one.")
@click.option("--fetch", "fetches", multiple=True, metavar="NAME", help="A variable instead of the answer; may be given again.")
@click.option("--max-body", type=click.IntRange(min=1), default=10_000_000, show_default=True, help="Bytes of a request.")
@click.option("--memory", type=click.IntRange(min=16), default=256, show_default=True, help="MiB that all requests take together.")
@click.option("--queue", "waiting", type=click.IntRange(min=1), default=64, show_default=True, help="Requests that may wait.")
@click.option("--batch", type=click.IntRange(min=1), default=64, show_default=True, help="Rows that are answered together.")
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, show_default=True, help="Milliseconds that a batch waits for more.")
@click.option("--name", "names", multiple=True, metavar="HOST", help="Another name of the server, as of a proxy; may be given again.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    target: Path,
    host: str,
    port: int,
    fetches: tuple[str, ...],
    max_body: int,
    memory: int,
    waiting: int,
    batch: int,
    wait: float,
    names: tuple[str, ...],
    checkpoint: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Answer JSON over HTTP until Ctrl-C.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. POST /predict takes {"rows": [{"column": cell, ...}]}, one
    row, a text, or a picture (Content-Type: image/...), and answers as pe predict does; GET / is a page to try it, /schema tells the
    columns, /health how the server is. No data file is read. There is no password: whoever reaches the port may ask.
    """
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet
    from pe_cli.core.errors import PeError
    from pe_cli.core.signals import SIGNALS
    from pe_cli.session.evaluation.predictor import Predictor
    from pe_cli.session.serving.service import Service

    # on one device: each has running statistics of its own, and rows of a batch would be answered by others of these
    job, values = open_trained(target, ("executor.devices=1", *overrides), checkpoint, Quiet())
    predictor = Predictor(job, fetches)
    predictor.memory = (memory << 20) // 8
    predictor.warm(batch)
    facts = {"model": job.run.model.name, "checkpoint": values}
    limits = {"body": max_body, "memory": memory << 20, "waiting": waiting, "batch": batch}
    try:
        service = Service(predictor, facts, (host, port), **limits, patience=wait / 1000, names=names)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise PeError(f"can't listen at {host}:{port}: {reason}", hint="choose another --port, or 0 for a free one") from None
    shown = f"[{host}]" if ":" in host else host
    echo(f"answers of {job.run.model.name} ({values}) at http://{shown}:{service.server.address[1]}/, until Ctrl-C")
    service.run(SIGNALS)
    echo(f"{service.answered:,} requests answered, {service.not_answered:,} refused")
