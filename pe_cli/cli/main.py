"""The group `pe`: finds subcommands, turns errors into messages and exit codes."""

from __future__ import annotations

import importlib
import os
import pkgutil
import sys

import click

from pe_cli import __version__
from pe_cli.core.errors import ExitCode, PeError

#: Modules of this package that are no subcommands.
PLUMBING = {"catalogue", "common", "layers_table", "main", "progress", "run_facts"}


class Commands(click.Group):
    """Subcommands by module name: `pe_cli/cli/train.py` holds `command` for `pe train`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names without importing any."""
        import pe_cli.cli

        return sorted(m.name for m in pkgutil.iter_modules(pe_cli.cli.__path__) if m.name not in PLUMBING)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a subcommand."""
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"pe_cli.cli.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            click.UsageError: there is none; says the closest.
        """
        from pe_cli.core.errors import did_you_mean

        if args and not args[0].startswith("-") and args[0] not in self.list_commands(ctx):
            hint = did_you_mean(args[0], self.list_commands(ctx)) or "pe --help lists them"
            raise click.UsageError(f"there is no command '{args[0]}'; {hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="pe")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Train neural networks that are declared in YAML, on a parallel executor that you can look into."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        click.echo("\nTo start: `pe init` writes a config with comments, `pe train CONFIG` trains it.")


def main() -> None:
    """Run the command line and exit with a documented code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one return an exit code
    """Run the command line.

    Args:
        arguments: without the program's name.

    Returns:
        An exit code of `ExitCode`.
    """
    try:
        result = cli.main(arguments, prog_name="pe", standalone_mode=False)
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except PeError as error:
        click.echo(error.render(), err=True)
        return error.code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - the reader went away; nothing more can be written
        return ExitCode.DONE
    except MemoryError:
        click.echo("error: out of memory\nhint: use a smaller batch_size", err=True)
        return ExitCode.DEVICE
    except Exception as error:  # noqa: BLE001 - the one place that turns our own bugs into a message and exit code 1
        return _bug(error)


def _bug(error: Exception) -> int:
    import traceback

    if os.environ.get("PE_DEBUG"):
        traceback.print_exception(error)
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition(os.sep)[2]}:{last.lineno}"
        click.echo(f"error: this is a bug of pe: {type(error).__name__}: {error} ({where})", err=True)
        click.echo("hint: run again with PE_DEBUG=1 for the whole story, and report it", err=True)
    return ExitCode.BUG


if __name__ == "__main__":
    main()
