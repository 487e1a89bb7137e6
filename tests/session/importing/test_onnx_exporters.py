"""What exporters write into files beside the network: sizes of the batch, masks, and values that are no parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from pe_cli.cli.main import run
from pe_cli.core.errors import PeError
from pe_cli.session.importing.training import for_training
from pe_cli.session.importing.write import write
from tests.session.importing.test_onnx import computed, drawn, graph, imported

BATCH_SIZES = [
    pytest.param(
        "(float[N, 3] x) => (float[N, 3] y) { s = Shape(x) i = Constant<value_int=0>() n = Gather(s, i) z = Constant<value_int=0>() "
        "o = Constant<value_int=1>() r = Range(z, n, o) f = Cast<to=1>(r) a = Constant<value_ints=[1]>() u = Unsqueeze(f, a) "
        "y = Add(x, u) }",
        id="rows are counted",
    ),
    pytest.param(
        "(float[N, 3] x, bool[1, 3] c) => (float[N, 3] y) { s = Shape(x) e = Expand(c, s) m = Neg(x) y = Where(e, x, m) }",
        id="truth values are repeated for every row",
    ),
]


@pytest.mark.parametrize("text", BATCH_SIZES)
def test_sizes_of_the_batch_are_those_of_a_step(text: str, tmp_path: Path) -> None:
    model = graph(text.replace(", bool[1, 3] c", ""), c=np.array([[True, False, True]]))
    made = imported(model, tmp_path)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for rows in (2, 5):
        feeds = {"x": drawn((rows, 3), rows)}
        np.testing.assert_array_equal(computed(made, tmp_path / f"of_{rows}", feeds)[0], session.run(None, feeds)[0])


#: A table of two rows joined to each of two pictures, as an exporter writes a token of classes that it has repeated.
JOINED = "(float[{rows}, 3, 4] x) => (float[{rows}, 4, 4] y) {{ y = Concat<axis=1>(c, x) }}"
REPEATED = "(float[{rows}, 4] x) => (float[{rows}, 4] y) {{ y = Add(c, x) }}"


@pytest.mark.parametrize(("text", "shape"), [(REPEATED, (2, 4)), (JOINED, (2, 1, 4))])
def test_a_batch_that_is_written_into_the_graph_is_no_batch_of_any_size(text: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    made = imported(graph(text.format(rows=2), c=drawn(shape)), tmp_path)
    assert made.feeds["x"]["replicate"]
    assert made.feeds["x"]["shape"][0] == 2
    assert any("keep the sizes of the file" in note and "2 rows" in note for note in made.notes)
    with pytest.raises(PeError, match=r"in a batch of 2|says \[-1"):
        imported(graph(text.format(rows="N"), c=drawn(shape)), tmp_path)


def test_a_constant_with_infinities_does_not_stop_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (
        "(float[N, 4] x) => (float[N, 3] y) { h = MatMul(x, w) s = Where(c, h, low) p = Softmax<axis=-1>(s) y = MatMul(p, v) }"
    )
    values = {"w": drawn((4, 3), 1), "v": drawn((3, 3), 2), "low": np.float32(-np.inf), "c": np.array([True, False, True])}
    model = for_training(imported(graph(text, **values), tmp_path), "classes")
    write(model, tmp_path / "made")
    np.savez(tmp_path / "made" / "train.npz", x=drawn((8, 4), 3), label=np.arange(8).reshape(8, 1) % 3)
    config = str(tmp_path / "made" / "config.yaml")
    assert run(["train", config, "--quiet", "-o", "output.checkpoint.every=1 epochs", "-o", f"output.dir={tmp_path / 'runs'}"]) == 0, (
        capfd.readouterr().err
    )
