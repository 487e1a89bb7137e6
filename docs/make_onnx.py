"""Writes docs/onnx.md: what of ONNX's own node tests `pe import` agrees with, and why others are refused.

Each test of `onnx.backend.test` is imported, built and run as a user's model is: its file becomes model.yaml and params.safetensors in a
folder, which a config opens. Inputs keep their sizes. An input that a layer has as a parameter or an argument is given as an initializer,
as it is in files of exporters.

Usage: python docs/make_onnx.py [--out RESULTS.jsonl] [--only TEXT] [--page]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
OURS = {"float32", "float64", "int64", "int32", "uint8", "bool"}


def cases() -> list[Any]:
    """Return all node tests, by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(load_model_tests(kind="node"), key=lambda case: case.name)


def loaded(case: Any) -> Any:
    """Return the model of a test."""
    import onnx

    return case.model if case.model is not None else onnx.load(f"{case.model_dir}/model.onnx")


def copied(model: Any) -> Any:
    """Return a model that may be changed."""
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(model)
    return made


def is_size(value: Any) -> bool:
    """Tell whether a value may say sizes, places or axes."""
    return isinstance(value, np.ndarray | np.generic) and np.ndim(value) < 2 and value.dtype.kind in "iu"


def run_model(model: Any, fed: dict[str, Any], folder: Path) -> tuple[list[Any], int]:
    """Import a model, open it as a user's, and compute its outputs.

    Returns:
        The outputs, and how many inputs were given as constants.

    Raises:
        PeError: it is refused.
    """
    import onnx
    from onnx import numpy_helper

    from pe_cli.execute.executor import Executor
    from pe_cli.io.checkpoint import load_arrays
    from pe_cli.session.importing.define import ImportWish
    from pe_cli.session.importing.kinds.onnx import KIND
    from pe_cli.session.importing.onnx.values import NeedsConstant
    from pe_cli.session.importing.write import write
    from pe_cli.session.job import Job

    names = [given.name for given in model.graph.input]
    constants: list[str] = []
    while True:
        file = folder / "test.onnx"
        onnx.save(model, file)
        try:
            made = KIND.read(ImportWish(file, fixed=True))
            break
        except NeedsConstant as error:
            wanted = [error.value] if error.value in fed else [name for name in names if name in fed and is_size(fed[name])]
            wanted = [name for name in wanted if name not in constants]
            if not wanted:
                raise
            constants += wanted
            model.graph.initializer.extend(numpy_helper.from_array(np.asarray(fed[name]), name) for name in wanted)
    write(made, folder / "made", replace=True)
    job = Job.open(folder / "made" / "config.yaml", ["executor.devices=1"])
    job.allocate()
    job.values.load(load_arrays(folder / "made" / "params.safetensors"))
    executor = Executor(job.built.eval, job.scope, seed=1)
    feeds = dict(zip([name for name in names if name not in constants], made.feeds, strict=True))
    given = {ours: np.asarray(fed[name]).astype(made.feeds[ours]["dtype"]) for name, ours in feeds.items()}
    values = executor.run([given], list(made.fetches)).values[0]
    return [values[name] for name in made.fetches], len(constants)


def agree(case: Any, ours: list[Any], theirs: list[Any]) -> str:
    """Return what differs; empty for nothing."""
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, not {len(theirs)}"
    for one, other in zip(ours, theirs, strict=True):
        wanted = np.asarray(other)
        if one.shape != wanted.shape and not (one.size == wanted.size == 1 and wanted.ndim == 0):
            return f"shape {list(one.shape)}, not {list(wanted.shape)}"
        got = one.reshape(wanted.shape).astype(np.float64)
        if not np.allclose(got, wanted.astype(np.float64), rtol=case.rtol, atol=max(case.atol, 1e-6), equal_nan=True):
            return f"off by {np.nanmax(np.abs(got - wanted.astype(np.float64))):.3g}"
    return ""


def result(case: Any) -> dict[str, Any]:
    """Return the state of a test."""
    from pe_cli.core.errors import PeError

    model = copied(loaded(case))
    said = {"name": case.name, "ops": sorted({node.op_type for node in model.graph.node}), "scope": in_scope(case)}
    values = [value for inputs, outputs in case.data_sets for value in (*inputs, *outputs)]
    if any(not isinstance(value, np.ndarray | np.generic) or value.dtype.kind in "OSUc" for value in values):
        return said | {"state": "refused", "why": "it is about texts, complex numbers, sequences or nothing"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            given = 0
            for inputs, outputs in case.data_sets:
                fed = dict(zip([one.name for one in model.graph.input], inputs, strict=False))
                ours, given = run_model(model, fed, Path(folder))
                differs = agree(case, ours, outputs)
                if differs:
                    return said | {"state": "wrong", "why": differs, "given": given}
            return said | {"state": "agrees", "given": given, "folded": bool(given) and given == len(fed)}
    except PeError as error:
        return said | {"state": "refused", "why": error.message.partition("): ")[2] or error.message}
    except Exception as error:  # noqa: BLE001 - a test that breaks us is a result
        return said | {"state": "broken", "why": f"{type(error).__name__}: {str(error)[:300]}"}


def in_scope(case: Any) -> bool:
    """Tell whether all values that a test feeds and expects are tensors of types that variables here have."""
    values = [value for inputs, outputs in case.data_sets for value in (*inputs, *outputs)]
    return all(isinstance(value, np.ndarray | np.generic) and value.dtype.name in OURS for value in values)


def page(found: list[dict[str, Any]], total: int) -> str:
    """Return the page: counts, and every test that does not agree, by its reason."""
    import onnx

    scope = [one for one in found if one["scope"]]
    rows = []
    for state, said in STATES.items():
        inside, whole = (sum(one["state"] == state for one in part) for part in (scope, found))
        rows.append(f"| {said} | {inside} ({share(inside, len(scope))}) | {whole} ({share(whole, len(found))}) |")
    given = sum(1 for one in found if one["state"] == "agrees" and one["given"])
    folded = sum(1 for one in found if one["state"] == "agrees" and one["folded"])
    reasons: dict[tuple[str, str], list[str]] = {}
    for one in found:
        if one["state"] != "agrees":
            reasons.setdefault((one["state"], general(one["why"])), []).append(one["name"].removeprefix("test_"))
    head = HEAD.format(version=onnx.__version__, count=len(found), total=total, scope=len(scope), given=given, folded=folded).rstrip()
    lines = [head, "", *TABLE, *rows, "", WHY, ""]
    lines += ["| state | why | tests |", "|---|---|---|"]
    for (state, why), names in sorted(reasons.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1])):
        lines.append(f"| {state} | {why.replace('|', ' ')} | {len(names)}: {', '.join(f'`{name}`' for name in names)} |")
    return "\n".join([*lines, "", *of_packages()]) + "\n"


def of_packages() -> list[str]:
    """Return the table of models that packages bring along; see docs/make_onnx_models.py."""
    head, *rows = [line.split("\t") for line in (HERE / "onnx_models.tsv").read_text(encoding="utf-8").splitlines()]
    agree = sum(row[head.index("state")].startswith("agrees") for row in rows)
    said = MODELS.format(count=len(rows), agree=agree, packages=len({row[0] for row in rows})).rstrip()
    table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return [said, "", *table, *(f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in rows)]


MODELS = """## Models that packages bring along

`docs/make_onnx_models.py` compares models in wheels of the package index with onnxruntime, for random inputs at batch 1: {agree} of {count}
models of {packages} packages agree within 1e-4. The error is the largest difference of any output, over the size of the number where that
is above 1. Where the state says so, the import was told sizes that the file leaves open, and what an input always is. Of smart-turn, the
file rounds values to 8 bits on the way, and `pe import` leaves that out. None of these models is part of pe.
"""
STATES = {"agrees": "agrees", "refused": "refused", "wrong": "other values", "broken": "a fault of pe"}
TABLE = ["| state | types of pe | all |", "|---|---|---|"]
WHY = "## What does not agree, and why"
HEAD = """# What of ONNX is imported

`pe import` is tried with the tests of single operators that the package `onnx` {version} brings along (`onnx.backend.test`);
this page is about {count} of the {total}. Each is written to a file, imported with `--fixed`, opened as a config is, and computed;
values are compared with the tolerances of the test. {scope} of them feed and expect tensors of the types that variables here have
(float32, float64, int64, int32, uint8, bool).

In {given} of the tests that agree, an input that a layer has as a parameter or as an argument is given as an initializer, as it is in the
files of exporters: weights of `Conv`, axes of `ReduceSum`, the shape of `Reshape`. In {folded} of these nothing is left to feed, and the
node is folded: only its values tell the size of what `NonZero`, `Unique`, `Range` and the windows of signals compute.
An operator that ONNX defines by others is tried by its layer first, and else by that definition.
"""


def share(part: int, whole: int) -> str:
    """Return a part in percent."""
    return f"{100 * part / whole:.1f}%" if whole else "-"


def general(why: str) -> str:
    """Return a reason without what belongs to one test."""
    text = re.sub(r"^.*?\): ", "", re.sub(r"^/\S+: ", "", why), count=1) if "node '" in why else re.sub(r"^/\S+: ", "", why)
    return re.sub(r"off by \S+", "other numbers", re.sub(r"'[^']*'", "...", text))


def main() -> None:
    """Run the tests, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="add results to this file, a line each, and leave out what is there already")
    parser.add_argument("--only", default="", help="tests with this text in their names")
    parser.add_argument("--page", type=int, metavar="TOTAL", help="write the page of what --out has of so many tests, and run nothing")
    options = parser.parse_args()
    kept = options.out.read_text().splitlines() if options.out and options.out.exists() else []
    found = {one["name"]: one for one in map(json.loads, kept)}
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.simplefilter("ignore")
        stream = stack.enter_context(options.out.open("a")) if options.out and not options.page else None
        for case in [] if options.page else cases():
            if options.only in case.name and case.name not in found:
                found[case.name] = result(case)
                if stream:
                    stream.write(json.dumps(found[case.name]) + "\n")
                    stream.flush()
    sys.stdout.write(f"{dict(Counter(one['state'] for one in found.values()))}\n")
    if not options.only:
        (HERE / "onnx.md").write_text(page([found[name] for name in sorted(found)], options.page or len(found)), encoding="utf-8")


if __name__ == "__main__":
    main()
