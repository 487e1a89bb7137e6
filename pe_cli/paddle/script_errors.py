"""What ends a script and is no error of its own: told in one message that names the line of the script, and what to use instead."""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.paddle.import_alias import NAME, PACKAGE

#: Module -> what pip calls the package that has it, where that is another name.
_PACKAGES = {
    "cv2": "opencv-python-headless", "PIL": "pillow", "sklearn": "scikit-learn", "skimage": "scikit-image", "yaml": "pyyaml",
    "google": "protobuf", "dateutil": "python-dateutil", "Levenshtein": "python-Levenshtein", "pkg_resources": "setuptools",
    "distutils": "setuptools",
}  # fmt: skip
#: Modules of Python 2 -> how they are imported since.
_PYTHON_2 = {
    "cPickle": "import pickle as cPickle", "ConfigParser": "import configparser as ConfigParser", "Queue": "import queue as Queue",
    "StringIO": "from io import StringIO", "cStringIO": "from io import StringIO", "urllib2": "import urllib.request as urllib2",
    "urlparse": "import urllib.parse as urlparse", "HTMLParser": "import html.parser as HTMLParser",
    "commands": "import subprocess as commands", "__builtin__": "import builtins as __builtin__", "imp": "import importlib",
}  # fmt: skip
#: Packages that call PaddlePaddle's own library.
_OF_PADDLE = ("paddlehub", "paddleslim", "paddlenlp", "paddlex", "paddle_serving_client", "parl", "pgl", "paddlepalm")
#: What a line of Python 2 has that no line of Python 3 has.
_LINES_OF_2 = re.compile(
    r"^\s*(print\s+[^=(\s]|print\s*>>|exec\s+[\"'\w])|\bexcept\s+[\w., ()]+,\s*\w+\s*:|^\s*raise\s+[\w.]+\s*,"
    r"|<>|`|(?<![\w.+-])0\d+\b|\b(0x[\da-fA-F]+|\d+)[lL]\b|\bur[\"']|\blambda\s*\("
)
#: What values of the dynamic mode have and variables of a program have not -> what to use.
_DYNAMIC = {
    **dict.fromkeys(("numpy", "item", "tolist", "value"), "its values are what Executor.run(fetch_list=[...]) returns"),
    **dict.fromkeys(
        ("backward", "gradient", "clear_gradient", "step", "clear_grad"), "optimizer.minimize(loss) once, and Executor.run for each step"
    ),
}
_CONVERT = "convert it: pip install fissix, then python -m fissix -w {0}; 2to3, which Python had until 3.12, does the same"


def explained(error: BaseException) -> PeError | None:
    """Return what to say of an exception that has ended a script; None where it is the script's own.

    Told are what this package refuses or has not, modules that are not installed, and files of Python 2.
    """
    if isinstance(error, SyntaxError):
        return _python_2(error)
    places = _places(error.__traceback__)
    if isinstance(error, PeError):
        for one in error.each:
            _place(one, places)
        return error
    said = _of_paddle(error) if isinstance(error, ImportError) else _attribute(error) if isinstance(error, AttributeError) else None
    if said is None and isinstance(error, ModuleNotFoundError) and error.name and places and _raised_by_a_script(error):
        said = _not_installed(error.name, places[-1])
    if said is not None:
        _place(said, places)
    return said


def _place(error: PeError, places: list[Span]) -> None:
    """Let an error name the innermost line of the script; the line of the file that was started is a note where it is another one."""
    if not places:
        return
    if error.at is None:
        error.at = places[-1]
    known = {(error.at.file, error.at.line)}
    for place in (places[-1], places[0]):
        if (place.file, place.line) not in known:
            error.notes.append((place, "called here"))
            known.add((place.file, place.line))


def _of_paddle(error: ImportError) -> PeError | None:
    """Return what to say of a module or name of `paddle` that is not there."""
    name = error.name or ""
    if name.startswith(f"{NAME}."):
        known = [module.removeprefix("pe_cli.") for module in sys.modules if module.startswith(f"{PACKAGE}.")]
        hint = did_you_mean(name, known) or "docs/coverage.md lists the names that there are"
        return PeError(f"there is no module '{name}'", hint=hint)
    found = re.match(r"cannot import name '(\w+)'", str(error))
    if found is None or not f"{name}.".startswith(f"{PACKAGE}."):
        return None
    try:
        getattr(sys.modules[name], found[1])
    except PeError as missing:
        return PeError(missing.message, hint=missing.hint)
    except AttributeError:
        pass
    return PeError(f"{name.removeprefix('pe_cli.')} has no '{found[1]}'", hint="docs/coverage.md lists the names that there are")


def _attribute(error: AttributeError) -> PeError | None:
    """Return what to say of an attribute that an object of this package does not have; None of an object of another one."""
    kind, name = type(error.obj), error.name or ""
    if not kind.__module__.startswith("pe_cli.") or not _raised_by_a_script(error):
        return None
    hint = _DYNAMIC.get(name) or did_you_mean(name, (other for other in dir(kind) if not other.startswith("_")))
    return PeError(f"{kind.__name__} has no '{name}'", hint=hint or "docs/coverage.md lists the names that there are")


def _not_installed(name: str, place: Span) -> PeError:
    """Return what to say of a module that is not there and no part of `paddle`."""
    top = name.partition(".")[0]
    beside = Path(place.file).parent
    if any((beside / file).exists() for file in (f"{top}.py", top)):
        text = f"there is no module '{name}': Python 3 looks for it beside the file that is started, not beside {place.file}"
        return PeError(text, hint=f"from . import {top}, where {beside} is a package, or PYTHONPATH={beside}")
    if top in _PYTHON_2:
        return PeError(f"'{name}' is a module of Python 2", hint=_PYTHON_2[top])
    if top in _OF_PADDLE:
        hint = "leave out what needs it: pe run stands in for paddle alone"
        return PeError(f"the package '{top}' is not installed, and it works with PaddlePaddle's own library alone", hint=hint)
    return PeError(f"the package '{top}' is not installed", hint=f"pip install {_PACKAGES.get(top, top)}")


def _python_2(error: SyntaxError) -> PeError | None:
    """Return what to say of a file of the script's that is Python 2; None where it is wrong in another way."""
    line = error.text or ""
    if not error.filename or not Path(error.filename).is_file() or not error.lineno or not _is_of_script(error.filename):
        return None
    if not isinstance(error, TabError) and not _LINES_OF_2.search(line):
        return None
    file = _shown_path(error.filename)
    column = max(1, error.offset or 1)
    end = error.end_offset if error.end_lineno == error.lineno else None
    at = Span(file, error.lineno, column, max(1, (end or column) - column), line.rstrip("\n"))
    return PeError(f"this is Python 2, and Python 3 does not read it: {error.msg}", at=at, hint=_CONVERT.format(file))


def _raised_by_a_script(error: BaseException) -> bool:
    """Return whether the line that raised is one of the script's, and not of a package that it calls."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<frozen")]
    return bool(frames) and _is_of_script(frames[-1].filename)


def _places(trace: TracebackType | None) -> list[Span]:
    """Return the lines of the script's own files that a traceback leads through, outermost first."""
    return [_span(frame) for frame in traceback.extract_tb(trace) if _is_of_script(frame.filename)]


def _span(frame: traceback.FrameSummary) -> Span:
    line = frame.lineno or 1
    text = linecache.getline(frame.filename, line).rstrip("\n")
    raw = text.encode(errors="surrogateescape")
    begin = len(raw[: frame.colno or 0].decode(errors="replace"))
    last = frame.end_colno if frame.end_lineno == frame.lineno and frame.end_colno is not None else len(raw)
    return Span(_shown_path(frame.filename), line, begin + 1, max(1, len(raw[:last].decode(errors="replace")) - begin), text)


def _is_of_script(file: str) -> bool:
    """Return whether a file is none of Python's, of an installed package's, or of ours."""
    kinds = sysconfig.get_paths()
    folders = {str(Path(__file__).parents[1]), *(kinds[kind] for kind in ("stdlib", "platstdlib", "purelib", "platlib"))}
    return not file.startswith("<") and not any(file.startswith(folder + os.sep) for folder in folders)


def _shown_path(file: str) -> str:
    """Return a path as seen from this folder, where it is in it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file
