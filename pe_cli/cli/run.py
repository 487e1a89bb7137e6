"""pe run: a script of PaddlePaddle's, unchanged, whose `paddle` is this program's."""

from __future__ import annotations

import os
import sys

import click

from pe_cli.cli.common import completer


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--devices", type=click.IntRange(1, 4096), metavar="N", help="CPU devices of the script: CPU_NUM, 1 where neither is given.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    metavar="N",
    help="Begin the random numbers of Python, of NumPy and of programs that set no random_seed with N.",
)
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is the name of a module, as after python -m.")
@click.option("-u", "unbuffered", is_flag=True, help="Write what the script prints at once, as python -u does.")
@click.argument("script", shell_complete=completer("scripts"))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
def command(
    devices: int | None, seed: int | None, is_module: bool, unbuffered: bool, script: str, arguments: tuple[str, ...]
) -> None:
    """Run a Python script that was written for PaddlePaddle's static graph, unchanged.

    In SCRIPT and all that it imports, `import paddle` and every module paddle.x is pe_cli.paddle; nothing else is other than with python
    SCRIPT ARGS: arguments, folder, exit code and traceback are the script's own. What a script asks for and pe does not have, such as the
    dynamic mode, and a package that is not installed are one error that names the line.
    """
    environment = {}
    if devices is not None:
        environment["CPU_NUM"] = str(devices)
    if seed is not None:
        environment["PYTHONHASHSEED"] = str(seed)
    # -P: no file of this folder is taken for one of those that pe imports; `run_script` adds the folder of the script
    words = [sys.executable, "-P", *(["-u"] if unbuffered else []), "-m", "pe_cli.paddle.run_script"]
    words += [] if seed is None else [f"--seed={seed}"]
    words += ["-m", script] if is_module else [script]
    # By exec, so that signals, the terminal and the exit code are the script's own.
    os.execve(sys.executable, [*words, *arguments], {**os.environ, **environment})
