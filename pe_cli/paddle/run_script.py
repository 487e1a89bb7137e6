"""Run a script whose `paddle` is this package: `python -m pe_cli.paddle.run_script [--seed=N] [-m] SCRIPT ARGS`, as `pe run` does.

Beside that alias the script finds what it finds under `python SCRIPT ARGS`: `__main__`, `sys.argv`, `sys.path`, its own exit code and
its own traceback.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import random
import runpy
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, TracebackType

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.execute import seeds
from pe_cli.paddle import dropped_names, import_alias, number_formats, script_errors

#: Files of calls that lead to a module that is run.
_RUNPY = ("<frozen runpy>", runpy.__file__)


def start(arguments: Sequence[str]) -> None:
    """Run a script or a module, and end as it ends.

    Args:
        arguments: `--seed=N` where one is wished, `-m` where a module follows, the script or module, and its own arguments.

    Raises:
        SystemExit: the script ends with an exit code, or something is refused.
    """
    given = list(arguments)
    # Errors of scripts look as Python shows them, without the frames of this program before them.
    sys.excepthook = _shortened
    try:
        if given[0].startswith("--seed="):
            _seed(int(given.pop(0).partition("=")[2]))
        number_formats.install()
        import_alias.install()
        dropped_names.install()
        if given[0] == "-m":
            _run_module(given[1:])
        else:
            _run_file(given)
    except Exception as error:
        said = script_errors.explained(error)
        if said is None:
            raise
        if os.environ.get("PE_DEBUG"):
            _shortened(type(error), error, error.__traceback__)
        print(said.render(), file=sys.stderr)  # noqa: T201
        sys.exit(int(said.code))


def _seed(seed: int) -> None:
    """Begin the random numbers of Python and NumPy with a seed, and draw the seeds of programs that name none from it."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - what scripts draw from
    seeds.unforeseen = np.random.default_rng(seed).bytes


def _run_file(argv: list[str]) -> None:
    """Run a file as `__main__`, with the variables that Python gives it.

    Raises:
        PeError: the file can't be read.
    """
    path = Path(argv[0])
    try:
        source = path.read_bytes()
    except OSError as error:
        why = "no such script" if isinstance(error, FileNotFoundError) else (error.strerror or str(error)).lower()
        raise PeError(f"{path}: {why}", hint="name a Python file; pe run -m MODULE runs a module") from None
    name = str(path.absolute())
    made = ModuleType("__main__")
    made.__dict__.update(__file__=name, __builtins__=builtins, __cached__=None)
    made.__loader__ = importlib.machinery.SourceFileLoader("__main__", name)
    # pickle and multiprocessing look for classes in `__main__` by name.
    sys.modules["__main__"] = made
    sys.argv[:] = argv
    _look_in(path.resolve().parent)
    compile(source, name, "exec", dont_inherit=True)  # what is no Python is told from here, as Python tells it
    exec(number_formats.compiled(source, name), made.__dict__)


def _run_module(argv: list[str]) -> None:
    """Run a module as `python -m` does; one of the original's is run by its name here."""
    name = argv[0]
    is_original = name == import_alias.NAME or name.startswith(f"{import_alias.NAME}.")
    sys.argv[:] = argv
    _look_in(Path.cwd())
    try:
        runpy.run_module(f"pe_cli.{name}" if is_original else name, run_name="__main__", alter_sys=True)
    except ImportError as error:
        # Only where runpy itself did not find the module: an import that fails inside it is the script's own error.
        if _files(error.__traceback__)[-1] not in _RUNPY:
            raise
        raise PeError(f"can't run the module '{name}': {error}", hint="pe run SCRIPT runs a file") from None


def _look_in(folder: Path) -> None:
    """Let modules be found in a folder first, unless Python has been told to look in none."""
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(folder))


def _shortened(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback as Python does, without the calls that lead from here to the script."""
    files = _files(trace)
    first = len(files) - files[::-1].index(__file__) if __file__ in files else 0
    while first < len(files) and files[first] in _RUNPY:
        first += 1
    for _ in range(first):
        trace = trace.tb_next if trace is not None else None
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


def _files(trace: TracebackType | None) -> list[str]:
    """Return the file of each call that a traceback leads through, outermost first."""
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(trace)]


if __name__ == "__main__":
    start(sys.argv[1:])
