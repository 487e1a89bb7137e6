"""What users call: names, signatures and first paragraphs of layers, optimizers, ops and the paddle modules, as recorded in a file.

`python -m tests.public_names` records them anew; do that only for a change that users are told about.
"""

from __future__ import annotations

import gzip
import importlib
import inspect
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pe_cli.layers.define.registry import discover as all_layers
from pe_cli.ops.define.registry import discover as all_ops
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.paddle.reference_names import known

FILE = Path(__file__).with_name("public_names.json.gz")
#: Modules that scripts import from; below `pe_cli.paddle`.
MODULES = (
    "", "distribution", "fluid", "fluid.clip", "fluid.initializer", "fluid.io", "fluid.layers", "fluid.metrics", "fluid.nets",
    "fluid.optimizer", "fluid.regularizer", "io", "linalg", "metric", "nn", "nn.functional", "nn.initializer", "optimizer", "optimizer.lr",
    "static", "static.nn", "tensor", "text", "vision", "vision.transforms",
)  # fmt: skip


def _shown(value: Any, *, kinds: bool = False) -> str:
    """Return a signature without addresses; its annotations, without their modules, only where they say what a config may give."""
    try:
        given = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    if not kinds:
        bare = [p.replace(annotation=inspect.Parameter.empty) for p in given.parameters.values()]
        given = inspect.Signature(bare)
    return re.sub(r" at 0x[0-9a-f]+", "", re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z_])", "", str(given)))


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0]


def _pickled(value: Any) -> bool:
    """Tell whether a pickle, which names a class by its module and name, finds it again."""
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def described(value: Any) -> list[Any] | None:
    """Return what is recorded of a name: signature, first paragraph and, of a class, whether it can be pickled, and its methods."""
    if isinstance(value, ModuleType):
        return None
    if inspect.isclass(value):
        # What exceptions have of Python is shown in another way by each version of it.
        names = [n for n in dir(value) if not n.startswith("_") and not hasattr(BaseException, n)]
        methods = {n: _shown(getattr(value, n)) for n in names if inspect.isroutine(getattr(value, n))}
        return [value.__name__, _shown(value), _first(value), _pickled(value), methods]
    if inspect.isroutine(value):
        return [value.__name__, _shown(value), _first(value)]
    return None


def now() -> dict[str, dict[str, Any]]:
    """Return what there is, by the kind of thing and its name."""
    modules = {}
    for path in MODULES:
        module = importlib.import_module(f"pe_cli.paddle.{path}".rstrip("."))
        catalogue = {"fluid.layers": all_layers(), "fluid.optimizer": OPTIMIZERS}.get(path, {})
        offered = known() | set(getattr(module, "__all__", ())) | set(catalogue)
        public = {n: described(v) for n, v in vars(module).items() if n in offered}
        modules |= {f"{path}.{n}".lstrip("."): facts for n, facts in public.items() if facts is not None}
    layers = {
        name: [_shown(d.fn, kinds=True), d.doc.partition("\n\n")[0], d.implied,
               list(d.labels), d.judges, d.answers, d.made_of, d.example != ""]
        for name, d in all_layers().items()
    }  # fmt: skip
    ops = {
        name: [str([(s.name, s.optional, s.variadic) for s in d.inputs]), str([s.name for s in d.outputs]),
               {a: [v.default, v.doc] for a, v in d.attrs.items()}, _first(d.infer) if d.infer else ""]
        for name, d in all_ops().items()
    }  # fmt: skip
    found = {"layers": layers, "ops": ops, "optimizers": {n: described(v) for n, v in OPTIMIZERS.items()}, "modules": modules}
    return json.loads(json.dumps(found))


def recorded() -> dict[str, dict[str, Any]]:
    """Return what is recorded."""
    return json.loads(gzip.decompress(FILE.read_bytes()))


def record() -> None:
    """Write what there is now."""
    FILE.write_bytes(gzip.compress(json.dumps(now(), sort_keys=True).encode(), mtime=0))


if __name__ == "__main__":
    record()
