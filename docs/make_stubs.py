"""Write the stubs of modules whose names are made when they are imported, so that editors know them: `python docs/make_stubs.py`."""

from __future__ import annotations

import importlib
import inspect
import keyword
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Packages that have a stub.
PACKAGES = ("pe_cli.paddle.fluid.layers", "pe_cli.paddle.nn", "pe_cli.paddle.nn.functional")
HEAD = '''\
"""Written by `make docs` from the functions themselves: their arguments, and the first sentence of their docs."""

from typing import Any

def __getattr__(name: str) -> Any: ...
'''


def _argument(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    plain = isinstance(parameter.default, (int, float, str, bool, type(None)))
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}" if plain else " = ..."
    return f"{stars}{parameter.name}: Any{default.replace('inf', '...')}"


def _arguments(made: Any, *first: str) -> str:
    """Return the arguments of a function or class, in parentheses."""
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return f"({', '.join((*first, '*args: Any', '**given: Any'))})"
    return f"({', '.join((*first, *map(_argument, parameters)))})"


def _doc(made: Any) -> str:
    text = (inspect.getdoc(made) or "").partition("\n\n")[0].replace("\n", " ").replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text} """' if text.endswith('"') else f'"""{text}"""'


def _line(name: str, made: Any) -> str:
    """Return the line of a name; of what stands in a module of its own under that name, nothing but where."""
    home = inspect.getmodule(made)
    if inspect.isclass(made) and home is not None and getattr(home, name, None) is made and f"class {name}" in inspect.getsource(home):
        return f"from {home.__name__} import {name} as {name}"
    if inspect.isclass(made):
        made_by = f"    def __init__{_arguments(made, 'self')} -> None: {_doc(made)}\n"
        return f"class {name}:\n{made_by}    def __call__(self, *args: Any, **given: Any) -> Any: ..."
    return f"def {name}{_arguments(made)} -> Any: {_doc(made)}"


def render(package: str) -> str:
    """Return the stub of a package."""
    module = importlib.import_module(package)
    there = {n: v for n, v in vars(module).items() if not n.startswith("_") and not keyword.iskeyword(n) and callable(v)}
    ours = {n: v for n, v in there.items() if getattr(v, "__module__", "").startswith("pe_cli.") and not _is_tool(n, v)}
    named = {n: v.__name__ for n, v in vars(module).items() if inspect.ismodule(v)}
    inner = sorted(n for n, full in named.items() if full in PACKAGES and full != package)
    parts = "".join(f"from {package} import {n} as {n}\n" for n in inner)
    return HEAD + parts + "".join(f"{_line(name, made)}\n" for name, made in sorted(ours.items()))


def _is_tool(name: str, made: Any) -> bool:
    """Tell whether a name of a module is a helper that it imports, and none of its own."""
    tools = ("pe_cli.paddle.reference_names", "pe_cli.paddle.errors", "pe_cli.paddle.forwarding", "pe_cli.layers.define.registry")
    return made.__module__ in tools and hasattr(importlib.import_module(made.__module__), name)


def place(package: str) -> Path:
    """Return the file of a package's stub."""
    return ROOT / package.replace(".", "/") / "__init__.pyi"


if __name__ == "__main__":
    for one in PACKAGES:
        place(one).write_text(render(one), encoding="utf-8")
