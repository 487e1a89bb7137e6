"""What several commands share: options, ways to name a model, and tables."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from pe_cli.build.build import Built
    from pe_cli.config.error_collector import Mistakes
    from pe_cli.config.spec import ModelSpec, RunSpec
    from pe_cli.execute.numeric_settings import Numerics
    from pe_cli.program.ir import Program
    from pe_cli.session.device_choice import Resources
    from pe_cli.session.job import Job
    from pe_cli.session.observer import Observer

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

#: Value of --resume without a folder or a run.
NEWEST = ":newest:"
#: Argument -> what completes it, in `completers`.
_COMPLETED = {"config": "configs", "target": "targets", "runs": "runs", "first": "runs", "second": "runs", "compared": "targets"}


def completer(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return a function of `completers` by its name; that module is imported when a shell asks."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> Any:
        from pe_cli.cli import completers

        return getattr(completers, name)(ctx, param, incomplete)

    return complete


def path_argument(name: str, **facts: Any) -> Callable[[AnyFunction], AnyFunction]:
    """Declare an argument that is a path; whether it exists is told by whoever reads it."""
    completes = completer(_COMPLETED[name]) if name in _COMPLETED else None
    return click.argument(name, type=click.Path(path_type=Path), shell_complete=completes, **facts)


def path_option(*names: str, **facts: Any) -> Callable[[AnyFunction], AnyFunction]:
    """Declare an option that is a path."""
    return click.option(*names, type=click.Path(path_type=Path), **facts)


def load_plugins_of(config: Path | None) -> None:
    """Load the packages that `--config` names, whatever else is in that file; nothing without one."""
    if config is not None:
        from pe_cli.config.plugins import load_declared

        load_declared(config)


def start_override(file: Path | None) -> tuple[str, ...]:
    """Return the override, as after `-o`, that `--init FILE` stands for."""
    from pe_cli.config.substitute import escaped

    # As JSON, so that characters of YAML in a file's name are not read as such; a dollar sign would name a variable.
    return () if file is None else (f"train.init.from={json.dumps(escaped(str(file.absolute())))}",)


#: `-o key=value`, the same everywhere.
override_option = click.option(
    "-o",
    "--override",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=completer("overrides"),
    help="Set a value of the config, like train.epochs=1, or add to a list with +=; checked like the file. May be given again.",
)
phase_option = click.option("--phase", metavar="NAME", help="Which of train.phases; the first one when absent.")
plugins_option = path_option("--config", metavar="CONFIG", help="Together with what the plugins of a config have.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for other programs.")


@dataclass(frozen=True)
class Source:
    """A config or a model file alone, with its programs.

    Args:
        model: what is computed.
        run: None for a model file.
        built: programs.
        phase: of a training step that is meant; None for the first one.
    """

    model: ModelSpec
    run: RunSpec | None
    built: Built
    phase: str | None = None

    def of_phase(self, name: str | None) -> Source:
        """Return the same with a phase chosen.

        Raises:
            PeError: there is none of that name.
        """
        return self if name is None else replace(self, phase=self.built.phase(name).name)

    @property
    def called(self) -> str:
        """The model, and the phase where steps have several."""
        name = self.phase or (self.built.phases[0].name if self.built.phases else "")
        return f"{self.model.name}: {name}" if name else self.model.name

    def program(self, evaluation: bool = False) -> Program:
        """Return the training program, or the evaluation program where it is asked for or there is no other."""
        if evaluation or self.built.train is None:
            return self.built.eval
        return self.built.train if self.phase is None else self.built.phase(self.phase).program

    def fetches(self, program: Program) -> list[str]:
        """Return the variables that are read after a step of one of its programs."""
        wanted = list(dict.fromkeys(self.built.fetches.values()))
        if program is self.built.eval:
            return wanted
        return [name for name in wanted if (phase := self.built.phase_of(name)) is not None and phase.program is program]

    @property
    def batch_size(self) -> int:
        """Samples of a step."""
        from pe_cli.session.job import DEFAULT_BATCH

        return self.run.train.batch_size if self.run and self.run.train else DEFAULT_BATCH


def open_source(path: Path, overrides: Sequence[str] = (), mistakes: Mistakes | None = None) -> Source:
    """Read a config, or a model file alone, and make its programs.

    Args:
        path: of either.
        overrides: of a config.
        mistakes: collects those of the files; more may be added before they are raised. Raised here when None.

    Raises:
        PeError: any mistake; nothing is returned when it can't be told what is computed.
    """
    from pe_cli.build.build import build_into
    from pe_cli.config.error_collector import Mistakes as New
    from pe_cli.config.load import load_model, read_run
    from pe_cli.session.data.head_classes import counted_into

    found = New() if mistakes is None else mistakes
    run: RunSpec | None = None
    # The mistakes of the config and those of its model are collected in one list, so that one run reports all.
    model: ModelSpec | None = None
    if _is_model(path):
        if overrides:
            raise PeError(f"{path} is a model file, and -o sets values of a config", hint="name a config")
        model = load_model(path)
    else:
        run = read_run(path, overrides, found)
        run = counted_into(run, found) if run else None
        model = run.model if run else None
    # Building goes on with what was read, as far as that goes: shapes that do not fit are found beside misspelt keys.
    built = build_into(model, run, found) if model else None
    if mistakes is None or built is None:
        found.raise_all()
    assert model is not None
    assert built is not None
    return Source(model, run, built)


def _is_model(path: Path) -> bool:
    """Whether a file has layers but names no model; mistakes are found by who reads it for good."""
    from pe_cli.config.error_collector import Mistakes, TooLargeError
    from pe_cli.config.files import read_text
    from pe_cli.config.nodes import MapNode
    from pe_cli.config.parse import parse
    from pe_cli.config.source import Source as Text

    try:
        tree = parse(Text(str(path), read_text(path, "config")), Mistakes())
    # A file beyond the limits of a config may be a model with very many layers; who reads it for good says what is wrong.
    except TooLargeError:
        return False
    return isinstance(tree, MapNode) and "layers" in tree.entries and "model" not in tree.entries


def resources_of(source: Source, devices: int | None = None) -> Resources:
    """Return the devices and threads that a config asks for; with devices, so many of its kind."""
    from functools import partial

    from pe_cli.core.types import Place
    from pe_cli.execute.plan.thread_layout import best_layout
    from pe_cli.session.device_choice import Resources, place_of_devices, resolve_places

    run = source.run
    kind = run.executor.place if run else "cpu"
    if devices is not None:
        return Resources(tuple(Place(kind, i) for i in range(devices)), 0, "")
    # A model file alone is planned for one device.
    if run is None:
        return Resources((Place(kind, 0),), 0, "")
    executor = run.executor
    best = partial(best_layout, source.program(), source.batch_size)
    return resolve_places(kind, executor.devices, place_of_devices(executor), best)


def numerics_of(source: Source, kind: str) -> Numerics:
    """Return how a step computes on devices of a kind."""
    from pe_cli.execute.numeric_settings import Numerics

    if source.run is None:
        return Numerics()
    from pe_cli.session.device_choice import libraries_of

    executor = source.run.executor
    return Numerics(executor.seed, executor.precision, libraries_of(kind, executor.libraries), executor.deterministic)


def open_trained(
    target: Path, overrides: Sequence[str], checkpoint: Path | None, observer: Observer | None = None, *, launched: bool = False
) -> tuple[Job, str]:
    """Return a job with the values of a checkpoint, and which checkpoint that is.

    Args:
        target: a run's folder, a checkpoint's folder in one, `best` or `last` beside it, or a config.
        overrides: of the config.
        checkpoint: file or folder that the values come from; None for what a run's folder means: its best where the config has
            `best: {use: true}`, else its last.
        observer: is told what happens.
        launched: together with the other processes that a launcher has started, where the config asks for several.

    Raises:
        PeError: a config without a checkpoint, a folder that is no run's, or values that do not fit.
    """
    from pe_cli.data.fitted_columns import NAME, Fitted
    from pe_cli.io.checkpoint import load_arrays, read_files
    from pe_cli.io.used_checkpoint import used
    from pe_cli.program.text import print_program
    from pe_cli.session.job import Job

    config = config_of(target)
    values = target if checkpoint is None else checkpoint
    if values == config:
        if not target.exists():
            around = [entry.name for entry in target.parent.iterdir()] if target.parent.is_dir() else []
            raise PeError(
                f"no such file or folder: {target}",
                hint=did_you_mean(target.name, around) or "check the path; pe runs lists the runs",
            )
        raise PeError(
            f"{target} is a config, which has no values",
            hint="add --checkpoint FILE, or name the folder of a run instead",
        )
    found = used(values)
    arrays, files = load_arrays(found), read_files(found)
    fitted = Fitted.from_files(files, str(found)) if NAME in files else None
    job = Job.open(config, overrides, observer, fitted=fitted, launched=launched)
    # Programs and files must be the same in all processes before any of them waits for another's values.
    with job.group.told():
        job.group.agree(lambda: print_program(job.built.eval), lambda: sorted(found.iterdir()) if found.is_dir() else [found])
        job.allocate()
        # Averages of parameters, where the run kept some, are what is evaluated.
        job.values.load(job.values.with_averages(arrays))
    if job.group.leads:
        _tell_of_the_best(job, values, found)
    return job, str(found)


def _tell_of_the_best(job: Job, given: Path, found: Path) -> None:
    """Say where the best checkpoint is, where a run was named, whose newest one is another."""
    from pe_cli.cli.terminal_text import echo
    from pe_cli.io.checkpoint import folder_of
    from pe_cli.io.checkpoint_folder import marked

    section = job.run.output.checkpoint.best if job.run.output.checkpoint else None
    if found.parent.parent != given or section is None:
        return
    best = marked(found.parent, "best")
    if best is not None and folder_of(found.parent, best) != found:
        folder = folder_of(found.parent, best).name
        echo(f"note: {found.name} is the newest checkpoint; the best by {section.by}, {folder}, is {found.parent / 'best'}", err=True)


def with_files(
    target: Path, overrides: Sequence[str], files: Sequence[Path], use: str, *, unlabelled: bool = False
) -> tuple[str, ...]:
    """Return overrides that make files of the user's the data of a use, read as the training data of a run was.

    Args:
        target: run, checkpoint or config.
        overrides: that were given.
        files: paths from where the user stands.
        use: of the data.
        unlabelled: what the model is asked for is not in the files.

    Raises:
        PeError: any mistake in the config; or the run's reader reads no such files.
    """
    from pe_cli.config.load import load_run
    from pe_cli.session.data.user_data import override

    return (*overrides, override(load_run(config_of(target), overrides), files, use, unlabelled=unlabelled))


def config_of(target: Path) -> Path:
    """Return the config of a target: itself, or resolved.yaml of the run around it.

    Raises:
        PeError: DATA; a folder that is no run's.
    """
    # A mark such as `best` is a small file inside the run, and a step that is not there should be told as such.
    checkpoint = target.name in ("best", "last") or target.name.startswith("step-")
    if not target.is_dir() and not checkpoint:
        return target
    from pe_cli.io.run_folder import RunFolder

    whole = Path(os.path.abspath(target))  # noqa: PTH100 - Path has nothing that removes `..` but follows no links
    # The run's folder itself, or one or two levels above a checkpoint of it.
    for folder in (whole, *list(whole.parents)[:2]):
        run = RunFolder(folder)
        if run.resolved_path.is_file():
            run.check_files()
            return run.resolved_path
    from pe_cli.io.history import newest_in

    raise PeError(
        f"{target} is not the folder of a run: it has no resolved.yaml",
        hint=newest_in(target) or "name a folder that pe train wrote, or a config with --checkpoint FILE",
        code=ExitCode.DATA,
    )


def number(value: float) -> str:
    """Return a number for people: six digits at most, thousands apart where it is whole.

    >>> number(1234567), number(0.123456789), number(2.0)
    ('1,234,567', '0.123457', '2')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.6g}"


def print_json(value: object, *, indent: int | None = None) -> None:
    """Print JSON; NaN and infinities are strings."""
    from pe_cli.io import strict_json

    echo(strict_json.dumps(value, indent=indent))
