"""Files of older and newer opsets compute the same in onnxruntime; what an opset cannot say is an error with the lowest one that can."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotThere

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.io.onnx.export import OPSET, export
from pe_cli.io.onnx.opset_rules import OLDEST
from pe_cli.layers.define.registry import find as find_layer
from pe_cli.ops.define.registry import Sample, find
from pe_cli.ops.define.traits import Random
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Program
from tests.io.test_onnx import AS_EVALUATED, CASES, COMPARED, KEPT
from tests.ops.support import as_lists, build, sample_arrays
from tests.rotation import of_today

#: Opsets of which each changed something that forms write, and the newest that onnxruntime promises to run.
OPSETS = (11, 12, 13, 15, 17, 21, 23)


def answers(data: bytes, names: Sequence[str], feed: dict[str, Any]) -> list[np.ndarray[Any, Any]]:
    """Return what onnxruntime computes."""
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    return list(session.run(list(names), feed))


def opset_of(data: bytes) -> int:
    """Return the opset that a file says to follow."""
    return int(next(each.version for each in onnx.load_from_string(data).opset_import if not each.domain))


@pytest.mark.parametrize(("name", "sample"), of_today(CASES, 20))
def test_every_form_computes_the_same_in_other_opsets(name: str, sample: Sample) -> None:
    inputs = as_lists(sample_arrays(find(name), sample, "float32"))
    program, outs = build(name, inputs, {**sample.attrs, **AS_EVALUATED.get(name, {})}, sample.outputs)
    outs = {slot: names for slot, names in outs.items() if slot == COMPARED.get(name, slot) and slot in KEPT.get(name, (slot,))}
    program.global_block().ops[-1].outputs = outs
    held = {f"{s}_{i}": a for s, v in inputs.items() for i, a in enumerate(v)}
    wanted = [n for names in outs.values() for n in names]
    usual = answers(export(program, held, wanted, "test"), wanted, {})
    for opset in OPSETS:
        data, lowest = tried(program, held, wanted, opset)
        if lowest:
            assert opset < lowest <= OPSET
            continue
        assert opset_of(data) == opset
        try:
            made = answers(data, wanted, {})
        except NotThere:  # onnxruntime runs fewer types of old operators than ONNX has, and not all of the newest
            continue
        for one, other in zip(made, usual, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            if not find(name).has(Random):
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=f"opset {opset}")


def tried(program: Program, held: dict[str, Any], wanted: Sequence[str], opset: int) -> tuple[bytes, int]:
    """Return a file of an opset, and 0; or nothing, and the lowest opset that can say the program."""
    try:
        return export(program, held, wanted, "test", opset=opset), 0
    except PeError as error:
        found = re.search(r"--opset ([0-9]+) or newer", error.hint or "")
        if found is None:
            raise
        return b"", int(found[1])


def written(opset: int, layers: Sequence[tuple[str, dict[str, Any]]], shape: Sequence[int] = (3, 8)) -> tuple[bytes, list[str]]:
    """Return a file of layers that follow one another, and its output's name."""
    program = Program("p")
    x = program.global_block().create_var("x", TensorType((-1, *shape)), is_data=True)
    with program_guard(program, Program("startup")):
        for kind, args in layers:
            x = find_layer(kind).fn(x, **args)
    values = np.random.default_rng(1)
    held = {v.name: values.standard_normal(v.shape).astype("float32") for v in program.list_vars() if v.persistable}
    return export(program, held, [x.name], "p", opset=opset), [x.name]


#: Layers whose nodes have other forms before opset 13, 17 and 18.
CHANGED = [
    pytest.param([("layer_norm", {"begin_norm_axis": 1})], (3, 8), id="the mean and variance of two axes"),
    pytest.param([("layer_norm", {"begin_norm_axis": 2, "scale": False})], (3, 8), id="a norm that has no scale"),
    pytest.param([("softmax", {"axis": 1})], (3, 8), id="softmax along an axis that is not the last"),
    pytest.param([("reduce_sum", {"dim": [2]}), ("reduce_max", {"dim": [1]})], (3, 8), id="axes of reductions"),
    pytest.param([("unsqueeze", {"axes": [1]}), ("squeeze", {"axes": [1]})], (3, 8), id="axes that come and go"),
    pytest.param([("resize_bilinear", {"out_shape": [5, 7]})], (2, 4, 4), id="sizes of pictures"),
]


@pytest.mark.parametrize(("layers", "shape"), CHANGED)
@pytest.mark.parametrize("opset", [OLDEST, 13, 17])
def test_a_layer_of_a_newer_opset_becomes_nodes_of_an_older_one(opset: int, layers: Any, shape: Sequence[int]) -> None:
    feed = {"x": np.random.default_rng(2).standard_normal((2, *shape)).astype("float32")}
    usual, names = written(OPSET, layers, shape)
    older, _ = written(opset, layers, shape)
    assert opset_of(older) == opset
    np.testing.assert_allclose(answers(older, names, feed)[0], answers(usual, names, feed)[0], rtol=1e-5, atol=1e-6)


def test_what_an_opset_cannot_say_names_the_node_and_the_lowest_one_that_can() -> None:
    with pytest.raises(PeError, match=r"opset 11 cannot say Trilu of .* \(it does not exist there\)") as caught:
        written(11, [("triu", {})])
    assert caught.value.hint == "--opset 14 or newer"


@pytest.mark.parametrize("opset", [0, 10, 99])
def test_opsets_that_are_not_written_are_refused(opset: int) -> None:
    with pytest.raises(PeError, match=f"opset {opset} is not written") as caught:
        written(opset, [("relu", {})])
    assert (caught.value.hint or "").startswith(f"from {OLDEST} to ")


def test_the_command_takes_an_opset(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from pe_cli.cli.main import run

    feeds = "name: m\nfeeds: {x: {shape: [4], dtype: float32}}\n"
    (tmp_path / "m.yaml").write_text(f"{feeds}layers: {{y: {{type: softmax, input: x}}}}\nfetches: [y]\n")
    (tmp_path / "c.yaml").write_text("model: m.yaml\ndata: {predict: {reader: npz, file: x.npz}}\nfeeds: {x: x}\n")
    np.savez(tmp_path / "none.npz")
    out = tmp_path / "m.onnx"
    said = ["export", str(tmp_path / "c.yaml"), "--checkpoint", str(tmp_path / "none.npz"), "--onnx", str(out), "--raw", "--opset", "12"]
    assert run(said) == 0, capfd.readouterr().err
    assert "ONNX opset 12" in capfd.readouterr().out
    assert opset_of(out.read_bytes()) == 12
