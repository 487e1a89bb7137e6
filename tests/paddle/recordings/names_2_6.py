"""Names of PaddlePaddle 2.6.2 by module, each with its arguments in order: `python names_2_6.py FILE`."""

import importlib
import inspect
import json
import sys
from pathlib import Path

MODULES = (
    "paddle", "paddle.nn", "paddle.nn.functional", "paddle.nn.initializer", "paddle.nn.utils", "paddle.static", "paddle.static.nn",
    "paddle.optimizer", "paddle.optimizer.lr", "paddle.metric", "paddle.io", "paddle.regularizer", "paddle.vision", "paddle.vision.models",
    "paddle.vision.transforms", "paddle.vision.datasets", "paddle.vision.ops", "paddle.text", "paddle.linalg", "paddle.utils",
    "paddle.utils.unique_name", "paddle.autograd",
)  # fmt: skip


def arguments(value):
    """Return the names of a callable's arguments, but for collecting ones; nothing where it has no signature."""
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return ""
    return " ".join(p.name for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def main():
    """Write the file."""
    import paddle

    paddle.enable_static()
    found = {}
    for path in MODULES:
        module = importlib.import_module(path)
        names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
        found[path] = {name: arguments(getattr(module, name, None)) for name in sorted(set(names))}
    Path(sys.argv[1]).write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
