"""Runs a page of the documentation as its reader would: writes its files, types its commands, compares what is shown.

- A fenced block `console` holds commands (`$ pe ...`) and what they print. Nothing below a command: nothing is compared.
- `<!-- file: NAME -->` before a fenced block: it is saved as NAME, as the page tells the reader to.
- `<!-- starts: repository -->`: the page starts in a checkout, not in an empty folder.
- `<!-- measured -->` before a block: what it shows was measured, and no number is compared.

What is shown may leave lines out (a line `...`) and parts of lines (`...` in it). Times, sizes and rates are not compared,
run folders' times neither; other numbers with a point may differ a little, as the last digits depend on the processor.
All else has to be equal.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"(?:<!-- (?P<word>file|measured)(?:: (?P<name>\S+))? -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)```\n", re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])")
_VOLATILE = (
    (re.compile(r"-\d{8}-\d{6}(-\d+)?"), "-TIME"),
    (re.compile(r"(on|auto) +\d+ cpu \([^)]*\)"), r"\1 N cpu (WHY)"),
    (re.compile(r"[\d,.]+(e-?\d+)? ?(s|ms|samples/s|%|B|KiB|MiB|KB|kernels)(?![\w/])"), r"N \2"),
)
#: How far a number with a point may be off, by itself and in relation to what is shown.
NEAR, PART = 0.05, 0.25


@dataclass(frozen=True)
class Command:
    """A line to type, and what the page shows below it."""

    line: str
    shown: tuple[str, ...]
    measured: bool = False


@dataclass(frozen=True)
class Step:
    """A file to write, or commands to type."""

    file: str
    text: str
    commands: tuple[Command, ...]


def steps(page: Path) -> list[Step]:
    """Return what a page tells its reader to do, in order."""
    found = []
    for block in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["word"] == "file":
            found.append(Step(block["name"], block["text"], ()))
        elif block["kind"] == "console":
            found.append(Step("", "", commands(block["text"], block["word"] == "measured")))
    return found


def commands(text: str, measured: bool = False) -> tuple[Command, ...]:
    """Return the commands of a block with their outputs."""
    assert text.startswith("$ "), f"a console block begins with a command: {text!r}"
    parts = [part.rstrip("\n").split("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]]
    return tuple(Command(lines[0], tuple(lines[1:]), measured) for lines in parts)


def run_page(page: Path, folder: Path, pe: str) -> int:
    """Do all that a page says in a folder.

    Args:
        page: the page.
        folder: where its reader is.
        pe: line of a shell that runs `pe`.

    Returns:
        Number of commands that were typed.

    Raises:
        AssertionError: a command that fails and shows no error, or says something else than is shown.
    """
    if "<!-- starts: repository -->" in page.read_text(encoding="utf-8"):
        for name in ("configs", "models"):
            shutil.copytree(ROOT / name, folder / name)
    tools = folder.parent / "bin"
    tools.mkdir()
    for name, line in (("pe", pe), ("python", f'exec "{sys.executable}" "$@"')):
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    typed = 0
    for step in steps(page):
        if step.file:
            target = folder / step.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(step.text, encoding="utf-8")
        else:
            for command in step.commands:
                _type(command, folder, tools)
                typed += 1
    return typed


def _type(command: Command, folder: Path, tools: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if name != "CPU_NUM"}
    environment = {**plain, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", command.line], cwd=folder, env=environment, text=True, check=False,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    wants_error = any("error:" in line for line in command.shown)
    assert (done.returncode != 0) == wants_error, f"$ {command.line}\n{done.stdout}\nexit code {done.returncode}"
    if command.shown:
        lines = done.stdout.replace(str(folder), "/home/you/pe").splitlines()
        # the renderer's, about its own files; and which step is the best, which differs between machines
        said = [line for line in lines if not line.startswith("Fontconfig ") and " is the newest checkpoint; the best by " not in line]
        shown = list(command.shown)
        if command.measured:
            shown, said = ([_NUMBER.sub("N", line) for line in lines] for lines in (shown, said))
        wrong = difference(shown, said)
        assert not wrong, f"$ {command.line}\n{done.stdout}\n{wrong}"


def difference(shown: list[str], said: list[str]) -> str:
    """Return what differs, or nothing where what was said is what is shown."""
    if not shown:
        return f"it also says: {said[0]}" if said else ""
    if shown[0].strip() == "...":
        fits = any(not difference(shown[1:], said[i:]) for i in range(len(said) + 1))
        return "" if fits else f"it does not end with: {shown[1:]}"
    if not said:
        return f"it does not say: {shown[0]}"
    if not same(shown[0], said[0]):
        return f"shown: {shown[0]}\nsaid:  {said[0]}"
    return difference(shown[1:], said[1:])


def same(shown: str, said: str) -> bool:
    """Whether a line is as shown.

    >>> same("loss 0.52  320 steps  1.5 s", "loss 0.50   320 steps  9.9 s"), same("320 steps", "321 steps")
    (True, False)
    """
    shown, said = _plain(shown), _plain(said)
    pieces = [_NUMBER.split(part) for part in shown.split("...")]
    pattern = ".*".join(rf"({_NUMBER.pattern})".join(map(re.escape, piece)) for piece in pieces)
    found = re.fullmatch(pattern, said)
    return found is not None and all(map(_near, _NUMBER.findall(shown), found.groups()))


def _plain(line: str) -> str:
    for volatile, instead in _VOLATILE:
        line = volatile.sub(instead, line)
    return re.sub(r"\s+", " ", line).strip()


def _near(shown: str, said: str) -> bool:
    if "." not in shown and "." not in said:
        return shown == said
    a, b = float(shown.replace(",", "")), float(said.replace(",", ""))
    return abs(a - b) <= max(NEAR, PART * abs(a))
