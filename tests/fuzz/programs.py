"""Programs that were changed at random are read, and run where they can be: `python tests/fuzz/programs.py SEED COUNT`.

Every change ends in a step or in a PeError. What else happens is printed, and a crash ends the process with a signal: the number of the
change and its text are written to a file before it runs.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import warnings
from pathlib import Path

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.layers.control.loops import cond, scan
from pe_cli.layers.define.registry import find
from pe_cli.program.backward import append_backward
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program, Role
from pe_cli.program.serialize import to_json
from pe_cli.program.text_forms import from_string, to_string

NUMBERS = ("0", "-1", "1", "2", "3", "7", "1000", "65536", "4294967296", "1000000000000000000", "9223372036854775807")


def call(layer, *args, **given):
    return find(layer).fn(*args, **given)


def scaled(x):
    return [call("scale", x, 2.0)]


def samples() -> list[str]:
    """Return programs of several kinds as texts and as JSON."""
    made = []
    for kind in ("mlp", "images", "ids", "scan"):
        main, startup = Program(kind), Program("startup")
        with program_guard(main, startup):
            if kind == "images":
                x = call("data", "x", [2, 6, 6])
                h = call("pool2d", call("conv2d", x, 3, 3, act="relu"), 2, pool_stride=2)
                h = call("fc", call("batch_norm", h), 3)
            elif kind == "ids":
                x = call("data", "x", [1], dtype="int64")
                h = call("fc", call("concat", [call("embedding", x, [5, 4]), call("embedding", x, [5, 4])], 1), 3)
            elif kind == "scan":
                x = call("data", "x", [4, 3])
                rows = call("transpose", x, [1, 0, 2])
                zero = call("fill_constant_batch_size_like", rows, [-1, 3], "float32", 0.0, 1, 0)
                (rows,), (last,) = scan(lambda e, s: ([call("fc", [e[0], s[0]], 3, act="tanh")], [s[0]]), [rows], [zero])
                flag = call("less_than", call("mean", last), call("fill_constant", [1], "float32", 0.5))
                (h,) = cond(flag, functools.partial(scaled, last), lambda x=last: [call("tanh", x)])
            else:
                x = call("data", "x", [3])
                h = call("fc", call("dropout", call("fc", x, 4, act="relu"), 0.5), 3)
            loss = call("mean", call("square", h))
            main.global_block().create_var("rate", call("fill_constant", [1], "float32", 0.1).type, persistable=True)
            for parameter, gradient in append_backward(loss):
                with main.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
                    ins = {"Param": parameter, "Grad": gradient, "LearningRate": "rate"}
                    main.global_block().append_op("sgd", ins, {"ParamOut": parameter})
        made += [to_string(main, with_details=True), to_json(main)]
    return made


def changed(text: str, draw: random.Random) -> str:
    """Return a text with a few changes: numbers, names of the text itself, lines and characters."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        kind = draw.randrange(6)
        numbers, names = list(re.finditer(r"-?\d+(\.\d+)?", text)), re.findall(r"[A-Za-z_][\w.@]*", text)
        if kind < 2 and numbers:
            at = draw.choice(numbers)
            text = text[: at.start()] + draw.choice(NUMBERS) + text[at.end() :]
        elif kind < 4 and names:
            old, new = draw.choice(names), draw.choice(names)
            places = [m.start() for m in re.finditer(re.escape(old), text)]
            at = draw.choice(places)
            text = text[:at] + new + text[at + len(old) :]
        elif kind == 4:
            lines = re.split(r"(?<=\n)|(?<=\},)", text)
            i, k = draw.randrange(len(lines)), draw.randrange(len(lines))
            lines[i] = draw.choice(("", lines[i] * 2, lines[k]))
            text = "".join(lines)
        else:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice('{}[]():,"-0aZ \n') + text[at + draw.randrange(2) :]
    return text


def run(text: str) -> str:
    """Read a program and run one step of it; return what came of it."""
    program = from_string(text)
    block = program.global_block()
    scope = Scope([Place("cpu", 0)])
    if sum(v.type.nbytes for v in block.vars.values() if v.persistable and v.type.known) > 1 << 28:
        return "large"
    executor = Executor(program, scope, seed=1)
    rng = np.random.default_rng(0)
    for name in scope:
        kind = scope.type(name)
        scope.set(name, (rng.standard_normal(kind.shape) * 0.1).astype(kind.numpy))
    feed = {}
    for v in block.vars.values():
        if v.is_data:
            shape = [4 if s == -1 else s for s in v.shape]
            if np.prod(shape, dtype=float) > 1 << 24:
                return "large"
            feed[v.name] = np.ones(shape, v.type.numpy)
    made = [n for op in block.ops for n in op.output_names()][-3:]
    if sum(kind.nbytes for kind in _types(executor, feed).values()) > 1 << 29:
        return "large"
    executor.run(feed, list(dict.fromkeys(n for n in made if n != "@EMPTY@")), 0)
    return "ran"


def _types(executor, feed):
    from pe_cli.core.types import TensorType
    from pe_cli.execute.lowering.types import concrete_types

    return concrete_types(executor.program, {n: TensorType(a.shape, str(a.dtype)) for n, a in feed.items() if n in executor.read})


def main() -> None:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    texts = samples()
    last = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    seen: dict[str, int] = {}
    for i in range(count):
        draw = random.Random(f"{seed}:{i}")
        text = changed(draw.choice(texts), draw)
        if last is not None:
            last.write_text(text, encoding="utf-8", errors="replace")
        try:
            found = run(text)
        except PeError:
            found = "refused"
        except Exception as error:  # noqa: BLE001 (it is what is looked for)
            found = f"{type(error).__name__}: {error!s:.120}"
            sys.stdout.write(f"change {i}: {found}\n")
            sys.stdout.flush()
            if last is not None:
                last.with_suffix(f".{i}").write_text(text, encoding="utf-8", errors="replace")
            found = "bare"
        seen[found] = seen.get(found, 0) + 1
    sys.stdout.write(f"{seen}\n")
    sys.exit(1 if "bare" in seen else 0)


if __name__ == "__main__":
    main()
