"""Writes text to the terminal; control characters in it are escaped, so that data cannot steer the terminal.

Names of runs, metrics and classes, states and notes come from files that others may have written.
"""

from __future__ import annotations

import click

from pe_cli.core.errors import shown


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Say something; control characters in it are shown as U+FFFD."""
    click.echo(shown(str(text)), err=err, nl=nl)
