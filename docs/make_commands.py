"""Write docs/commands.md from what `pe COMMAND --help` knows: `python docs/make_commands.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import click

from pe_cli.cli.main import GROUPS, cli

PAGE = Path(__file__).resolve().parent / "commands.md"
HEAD = """\
# Commands

Written by `make docs` from the commands themselves; `pe COMMAND --help` prints the same. `-o key=value` sets a
value of the config and may be given again. RUN and TARGET are folders that `pe train` wrote.

What a command ends with: [exit-codes.md](exit-codes.md). Completion with Tab: [pe completion](#pe-completion).
"""


def render() -> str:
    """Return the page."""
    ctx = cli.make_context("pe", [])  # with the settings of the group: commands keep the help option of their first context
    known = cli.list_commands(ctx)
    grouped = {name for names in GROUPS.values() for name in names}
    groups = {**GROUPS, "More": tuple(name for name in known if name not in grouped)}
    parts = [HEAD]
    for title, names in groups.items():
        found = [(name, cli.get_command(ctx, name)) for name in names if name in known]
        if found:
            parts.append(f"## {title}\n")
            parts += [section(name, command, ctx) for name, command in found if command]
    return "\n".join(parts)


def section(name: str, command: click.Command, above: click.Context) -> str:
    """Return what there is to say of a command."""
    ctx = click.Context(command, info_name=name, parent=above)
    usage = " ".join(command.collect_usage_pieces(ctx))
    parts = [f"### pe {name}\n", f"```\npe {name} {usage}\n```\n", f"{prose(command.help or '')}\n"]
    rows = [row(option) for option in command.params if isinstance(option, click.Option)]
    if rows:
        parts.append("\n".join(["| option | does |", "| --- | --- |", *rows]) + "\n")
    return "\n".join(parts)


def prose(text: str) -> str:
    r"""Return a help text as Markdown; what click is told to leave as it is (`\b`) becomes a block."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    made = []
    for paragraph in paragraphs:
        kept = paragraph.startswith("\b\n")
        made.append(f"```\n{paragraph[2:]}\n```" if kept else angle(" ".join(paragraph.split("\n"))))
    return "\n\n".join(made)


def row(option: click.Option) -> str:
    """Return an option's row."""
    names = ", ".join([*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" {option.metavar or kind(option)}".replace("|", "\\|")
    facts = [angle(option.help or "")]
    if option.required:
        facts.append("Required.")
    if option.show_default and option.default is not None:
        facts.append(f"Default: {option.default}.")
    return f"| `{names}{value}` | {' '.join(facts)} |"


def kind(option: click.Option) -> str:
    """Return what an option takes."""
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "N" if option.type.name.startswith("integer") else option.type.name.upper()


def angle(text: str) -> str:
    """Return text without characters that Markdown would take for markup."""
    return re.sub(r"(?<!`)[<>*|]", lambda found: f"\\{found[0]}", text)


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
