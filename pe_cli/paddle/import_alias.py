"""`import paddle` as another name of this package, for scripts that are run unchanged."""

from __future__ import annotations

import importlib
import shlex
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

#: What scripts import, and the package that they get.
NAME, PACKAGE = "paddle", "pe_cli.paddle"


class PaddleAlias(MetaPathFinder, Loader):
    """Finds `paddle` and every `paddle.x` in `pe_cli.paddle`: the very same module objects, under a second name."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return how to import a module of the original's name; None where it is another package's, or not there."""
        if fullname != NAME and not fullname.startswith(f"{NAME}."):
            return None
        source = f"pe_cli.{fullname}"
        try:
            importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name == source:
                # The module is missing, not one that it imports: only then another package may have the name.
                return None
            raise
        return ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of this package in the place of the empty one that Python has made."""
        # One module object under two names: `isinstance` and module state are the same by either.
        sys.modules[module.__name__] = sys.modules[f"pe_cli.{module.__name__}"]


def install() -> None:
    """Let `import paddle` mean this package from now on, in this process and those that are forked from it."""
    if not any(isinstance(finder, PaddleAlias) for finder in sys.meta_path):
        sys.meta_path.insert(0, PaddleAlias())


#: What `python` stands for in a shell. Options other than -u are for Python itself, and so is a program on standard input.
_AS_PYTHON = """%s() {
  case "$1" in
    -u) shift; export PYTHONUNBUFFERED=1; %s "$@" ;;
    -m|[!-]*) %s -P -m pe_cli.paddle.run_script "$@" ;;
    *) command %s "$@" ;;
  esac
}
"""


def shell_command(command: str) -> str:
    """Return a command for `sh -c` in which `python` runs scripts as this process was run: by `pe run`, or as ever.

    Args:
        command: what a script would have a shell do.
    """
    if not any(isinstance(finder, PaddleAlias) for finder in sys.meta_path):
        return command
    names = ("python", "python2", "python3")
    return "".join(_AS_PYTHON % (name, name, shlex.quote(sys.executable), name) for name in names) + command
