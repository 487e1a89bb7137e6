"""The group `pe`: finds subcommands, turns errors into messages and exit codes."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import pkgutil
import resource
import signal
import sys

import click

from pe_cli import __version__
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode, PeError, is_silent, system_error
from pe_cli.core.signals import SIGNALS, interrupted, interruptible

#: Modules of this package that are no subcommands.
PLUMBING = {
    "adapted_cost", "catalogue", "catalogue_entries", "common", "completers", "cuda_kernels", "framework_aliases", "layers_table",
    "main", "progress", "progress_bar", "run_facts", "terminal_text", "text_columns",
}  # fmt: skip

#: Commands in the order in which they are met; those that are in none are listed last.
GROUPS = {
    "Start": ("init", "import", "data", "check", "lr", "train", "launch", "sweep", "run"),
    "Use a trained model": ("eval", "predict", "serve", "generate", "export"),
    "Look at runs": ("runs", "report", "plot", "diff"),
    "Prove and find": ("verify", "replay", "compare"),
    "Look inside": ("summary", "graph", "profile", "explain", "bench"),
    "Look up": ("ops", "schema", "devices", "completion"),
}

#: Objects that may be made before the collector looks for cycles among them. Making a program and its plan makes 225,000 of
#: MobileNet and 330,000 of ResNet-50, all of which stay: to look at them again and again is a tenth of the time to the first step.
GARBAGE = 1_000_000

#: Bytes of addresses (`ulimit -v`) that a command needs: with fewer, OpenBLAS ends the process in its own way, and LLVM aborts it.
LEAST_ADDRESSES = 384 << 20

WELCOME = """pe trains neural networks that are declared in YAML.

To start:
  pe init                 write config.yaml and its model, with comments
                          --from FILE --target COLUMN: for data of yours
  pe check config.yaml    report all mistakes, shapes and memory
  pe train config.yaml    train; the last line names the run's folder, runs/...
  pe report runs/...      make a page with its curves, graph and memory

pe --help lists all commands, pe COMMAND --help explains one, pe ops lists the layers.
"""


class Commands(click.Group):
    """Subcommands by module name: `pe_cli/cli/train.py` holds `command` for `pe train`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all names without importing any."""
        import pe_cli.cli

        # Modules are listed, not imported: a command that is not asked for costs nothing.
        return sorted(m.name for m in pkgutil.iter_modules(pe_cli.cli.__path__) if m.name not in PLUMBING)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a subcommand."""
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"pe_cli.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        known = self.list_commands(ctx)
        grouped = {name for names in GROUPS.values() for name in names}
        rest = {"More": [name for name in known if name not in grouped]}
        for title, names in {**GROUPS, **rest}.items():
            found = [(name, self.get_command(ctx, name)) for name in names if name in known]
            rows = [(f"{name:<10}", command.get_short_help_str(80)) for name, command in found if command]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            click.UsageError: there is none; says the closest.
        """
        from pe_cli.core.errors import did_you_mean

        # Before click looks: its own message has no hint.
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
        echo(WELCOME, nl=False)


def main() -> None:
    """Run the command line and exit with a documented code.

    SIGINT and SIGTERM interrupt a command. Training takes them itself once it has begun, and until then they end the process.
    """
    # Put back at the end, where Python's own handlers are to meet late signals.
    before = {number: signal.getsignal(number) for number in SIGNALS}
    # `pe train` may have handlers already, which let a step end: those stay.
    if "train" not in sys.argv[1:2] or signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        interruptible()
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    # Below that, importing fails at places that name no cause.
    # Options such as --help need little and may still work.
    if resource.RLIM_INFINITY != allowed < LEAST_ADDRESSES and len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        sys.exit(_too_little(f"{allowed >> 10} KiB of addresses are allowed, and {LEAST_ADDRESSES >> 10} are needed to begin"))
    gc.set_threshold(GARBAGE, 10, 10)
    # there are no plugins for our forms, and pydantic would look for some in every installed package
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    code = run(sys.argv[1:])
    # `python -m` remembers a KeyboardInterrupt that left an exec, with which dataclasses and named tuples are made, and ends by SIGINT
    # for it at its end, handled or not; the next exec makes it forget.
    exec("")
    for number, handler in before.items():  # there is nothing left to put in order, and an exception would be printed and lost
        signal.signal(number, handler)
    # At its end Python looks for cycles in all that is left, twice: a fifth of the processor time of `pe check`, for what goes anyway.
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:  # noqa: PLR0911 - one return per exit code
    """Run the command line.

    Args:
        arguments: without the program's name.

    Returns:
        An exit code of `ExitCode`.
    """
    # A shell asks for completions by this variable; help and texts of commands are of no use to it.
    if os.environ.get("_PE_COMPLETE"):
        from pe_cli.cli.completers import register

        register()
    try:
        result = cli.main(arguments, prog_name="pe", standalone_mode=False)
        return int(result) if isinstance(result, int) else ExitCode.DONE
    except PeError as error:
        echo(error.render(), err=True)
        return error.code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        echo(usage_error(error).render(), err=True)
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # Python would flush the old one at its end and print an error of its own.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - the reader went away; nothing more can be written
        return ExitCode.DONE
    except Exception as error:  # noqa: BLE001 - the one place that turns our own bugs into a message and exit code 1
        said = system_error(error)
        if said is None and interrupted():
            echo("interrupted", err=True)
            return ExitCode.INTERRUPTED
        # With PE_DEBUG also errors of the system show where they came from.
        if said is None or (isinstance(error, OSError) and os.environ.get("PE_DEBUG")):
            return _bug(error)
        echo(said.render(), err=True)
        return said.code


def usage_error(error: click.ClickException) -> PeError:
    """Return what click says of wrong usage as the other errors are said, with how to go on."""
    message = error.format_message().rstrip(".")
    ctx = error.ctx if isinstance(error, click.UsageError) else None
    name = ctx.command_path if ctx else "pe"
    hint = f"{name} --help explains its arguments" if ctx and ctx.parent else None
    if isinstance(error, click.MissingParameter) and error.param is not None:
        what = error.param
        message = f"{name} needs {what.human_readable_name if isinstance(what, click.Argument) else what.opts[0]}"
        hint = _about(what) or hint
    elif "unexpected extra argument" in message:
        hint = f"a pattern such as runs/* may have stood for several names; {hint}"
    # click begins its sentences with a capital letter, the other messages here do not; a name in capitals stays.
    text = message[:1].lower() + message[1:] if message[1:2].islower() else message
    return PeError(text, hint=hint)


def _about(what: click.Parameter) -> str:
    """Return what a parameter is, and where one comes from."""
    if isinstance(what, click.Option):
        value = what.metavar or ("N" if isinstance(what.type, click.types.IntParamType) else what.type.name.upper())
        return f"{what.opts[0]} {value}: {what.help}"
    return {
        "config": "pe init writes a first config, config.yaml",
        "target": "the folder of a run that pe train wrote; pe runs lists them",
        "runs": "the folders of runs that pe train wrote; pe runs lists them",
    }.get(str(what.name), "")


def _out_of_memory(error: BaseException | None) -> str | None:
    """Return what the system had no memory for, as an error or one that led to it says; None where none says so."""
    # An error of a library hides what the system said: the chain of causes is followed to the first that tells.
    while error is not None:
        if "can't start new thread" in str(error):
            return "no more threads can be started"
        texts = ("cannot allocate memory", "failed to map segment")
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM or any(t in str(error).lower() for t in texts):
            return "a library could not be mapped"
        if is_silent(error):
            return "a library could not be mapped"
        error = error.__cause__ or error.__context__
    return None


def _too_little(why: str) -> int:
    echo(PeError(f"there is too little memory: {why}", hint="raise ulimit -v, or free memory").render(), err=True)
    return ExitCode.DEVICE


def _bug(error: Exception) -> int:
    import traceback

    # A package of this project that is missing would be a bug, one of others an installation that is not whole.
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith("pe_cli"):
        said = PeError(f"the package '{error.name}' is not installed", hint="pip install pe-cli, or in a checkout: pip install .")
        echo(said.render(), err=True)
        return ExitCode.USAGE
    why = _out_of_memory(error)
    if why is not None:
        return _too_little(why)
    if os.environ.get("PE_DEBUG"):
        traceback.print_exception(error)
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition(os.sep)[2]}:{last.lineno}"
        echo(f"error: this is a bug of pe: {type(error).__name__}: {error} ({where})", err=True)
        echo("hint: run again with PE_DEBUG=1 for the whole story, and report it", err=True)
    return ExitCode.BUG


if __name__ == "__main__":
    main()
