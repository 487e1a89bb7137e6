"""Write docs/coverage.md, the state of every name of PaddlePaddle's index: `python docs/make_coverage.py`."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pe_cli.build import typed_objects
from pe_cli.layers.define.registry import discover
from pe_cli.paddle.reference import recorded
from pe_cli.paddle.reference_names import known
from pe_cli.paddle.refused_names import NO_NAMES, REFUSED, Refusal, Refused

PAGE = Path(__file__).resolve().parent / "coverage.md"
HEAD = """\
# Names of PaddlePaddle

Written by `make docs` from the modules themselves. It shows the state of every name in the index of PaddlePaddle's reference that this
project follows, from version 1.3 to 2.0 in static mode. How values and messages differ where a name is there: [parity.md](parity.md).

`fluid` stands for `pe_cli.paddle.fluid`, and `paddle` for `pe_cli.paddle`.
"""
MODULES_HEAD = """\
Every module of PaddlePaddle 1.8.5 can be imported, and gives every public name that it has there: one that works, or one that says where
it is used why it is refused, and what to use instead. Refused are all names of a module that is not listed.
"""
#: Modules that names are looked up in, in this order.
MODULES = (
    "fluid", "fluid.layers", "fluid.io", "fluid.nets", "fluid.optimizer", "fluid.initializer", "fluid.regularizer", "fluid.clip",
    "fluid.metrics", "fluid.profiler", "fluid.transpiler", "paddle", "paddle.nn", "paddle.nn.functional", "paddle.static",
    "paddle.static.nn", "paddle.optimizer", "paddle.distribution", "paddle.metric", "paddle.io", "paddle.vision.transforms",
    "paddle.vision.datasets", "paddle.text", "paddle.device",
)  # fmt: skip


class State(NamedTuple):
    """What there is of a name.

    Args:
        name: of the index.
        kind: what it is; empty for a name that is not there.
        at: modules that have it.
        refusal: why it is refused, and where; None for one that is not.
    """

    name: str
    kind: str = ""
    at: tuple[str, ...] = ()
    refusal: tuple[str, Refusal] | None = None


def modules() -> dict[str, ModuleType]:
    """Return the modules that are there, by the names that scripts use."""
    found = {}
    for path in MODULES:
        full = f"pe_cli.paddle.{path}" if path.startswith("fluid") else f"pe_cli.{path}"
        try:
            found[path] = importlib.import_module(full)
        except ModuleNotFoundError:
            continue
    return found


def states() -> list[State]:
    """Return the state of every name, sorted."""
    places = modules()
    layers = discover()
    return [_state(name, places, layers) for name in sorted(known() - set(NO_NAMES), key=lambda n: (n.lower(), n))]


def _state(name: str, places: dict[str, ModuleType], layers: Any) -> State:
    found = {path: value for path, module in places.items() if (value := getattr(module, name, None)) is not None}
    there = {path: value for path, value in found.items() if not isinstance(value, Refused) and not _refuses(value)}
    if there:
        return State(name, _kind(name, next(iter(there.values())), layers), tuple(there))
    refused = [path for path in REFUSED if path.removesuffix(".*").rpartition(".")[2] == name]
    return State(name, refusal=(refused[0].removesuffix(".*"), REFUSED[refused[0]])) if refused else State(name)


def _refuses(value: Any) -> bool:
    """Whether something is a module whose names are all refused."""
    return isinstance(value, ModuleType) and value.__file__ is None if hasattr(value, "__file__") else isinstance(value, ModuleType)


def _kind(name: str, value: Any, layers: Any) -> str:
    if name in layers:
        return f"[YAML layer](ops/{name}.md) and function" if (PAGE.parent / "ops" / f"{name}.md").is_file() else "YAML layer and function"
    kinds = ((typed_objects.OPTIMIZER, "optimizer"), (typed_objects.SCHEDULE, "schedule"), (typed_objects.INITIALIZER, "initializer"))
    for table, word in kinds:
        if name in table.names() or name.removesuffix("Optimizer") in table.names():
            return f"`{word}` of a config, and {'class' if inspect.isclass(value) else 'function'}"
    return "class" if inspect.isclass(value) else "module" if inspect.ismodule(value) else "function"


def rows(head: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ("---",) * len(head), *lines))


def render() -> str:
    """Return the page."""
    found = states()
    there = [s for s in found if s.kind]
    refused = [s for s in found if s.refusal]
    missing = [s for s in found if not s.kind and not s.refusal]
    counts = rows(
        ("names", "state"),
        [
            (str(len(there)), "[supported](#supported)"),
            (str(len(refused)), "[refused](#refused): they can be imported, and raise an error that says what to use"),
            (str(len(missing)), "[missing](#missing): an `AttributeError` says so"),
            (str(len(NO_NAMES)), "entries of the index that are no names: " + ", ".join(f"`{n}` ({why})" for n, why in NO_NAMES.items())),
            (str(len(found) + len(NO_NAMES)), "in all; the index has 709 entries, as it lists some of these names under several modules"),
        ],
    )
    parts = [
        HEAD,
        counts,
        "\n## Refused\n",
        rows(("name", "why", "use"), [(f"`{at}`", why.why, why.use) for s in refused if s.refusal for at, why in [s.refusal]]),
        "\nFurther names and modules of the original that the index leaves out are refused in the same way:\n",
        rows(("name", "why", "use"), _further({s.refusal[0] for s in refused if s.refusal})),
        "\n## Missing\n",
        ", ".join(f"`{s.name}`" for s in missing) + "." if missing else "None.",
        "\n## Modules\n",
        MODULES_HEAD,
        rows(("module", "names", "work", "refused"), module_rows()),
        "\n## Supported\n",
        rows(("name", "is", "in"), [(f"`{s.name}`", s.kind, ", ".join(f"`{path}`" for path in s.at)) for s in there]),
    ]
    return "\n".join(parts) + "\n"


def module_rows() -> list[tuple[str, ...]]:
    """Return a row for every module of the original in which a name works: how many names it has, how many work, and which are refused."""
    found = []
    for path, names in recorded().items():
        module = importlib.import_module(f"pe_cli.{path}")
        refused = [name for name in sorted(names.own) if isinstance(getattr(module, name), Refused)]
        whole = len(names.own)
        if whole > len(refused):
            found.append((f"`{path}`", str(whole), str(whole - len(refused)), ", ".join(f"`{name}`" for name in refused) or "none"))
    return found


def _further(told: set[str]) -> list[tuple[str, ...]]:
    return [(f"`{path}`", why.why, why.use) for path, why in sorted(REFUSED.items()) if path.removesuffix(".*") not in told]


def main() -> None:
    """Write the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
