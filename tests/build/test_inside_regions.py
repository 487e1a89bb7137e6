"""What is asked of a whole model counts the ops inside of its loops and conditions, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pe_cli.build.build import Built
from pe_cli.build.model_warnings import model_warnings
from pe_cli.build.parameter_patterns import Matching
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError
from pe_cli.execute.plan.thread_layout import statistics_note
from pe_cli.graph.passes import dead_code, sync_batch_norm
from pe_cli.optim.wrappers import looked_up
from pe_cli.program.ir import Operator
from pe_cli.program.region import every_op, given, regions_of
from pe_cli.session.training.initial_values import readings
from pe_cli.session.weight_files import for_torch

MODEL = """
feeds: {x: {shape: [4, 3]}, ids: {shape: [1], dtype: int64}, y: {shape: [1], dtype: int64}}
blocks:
  cell:
    args: {input: ~, h: ~, of: ~}
    layers:
      row:  {type: embedding, input: "${of}", size: [7, 2]}
      made: {type: fc, input: [input, h, row], size: 5, bias_attr: false}
      norm: {type: batch_norm, input: made}
    next: {h: norm}
    output: norm
layers:
  read: {scan: cell, input: x, of: ids, start: {h: {shape: [5], value: 0.25}}}
  out:  {type: fc, input: read.1, size: 3}
fetches: [out]
"""


@pytest.fixture
def model(built: Callable[[str], Built]) -> Built:
    """A model whose program takes statistics, as in training."""
    found = built(MODEL)
    for op in every_op(found.eval):
        op.attrs |= {"is_test": False} if "is_test" in op.attrs else {}
    return found


def scan_of(found: Built) -> Operator:
    (scan,) = (op for op in found.eval.top_ops if op.type == "scan")
    return scan


def test_every_op_is_there_in_order(model: Built) -> None:
    types = [op.type for op in every_op(model.eval)]
    assert types.index("scan") < types.index("mul") < types.index("batch_norm") < len(types) - 2
    assert len(types) == len(model.eval.top_ops) + len(scan_of(model).attrs["body"].program.top_ops)


def test_an_argument_stands_for_what_is_given(model: Built) -> None:
    scan = scan_of(model)
    (body,) = regions_of(scan).values()
    names = given(scan, body)
    assert [names[arg] for arg in body.args[:1]] == scan.inputs["X"]
    assert {names[arg] for arg in body.args} == {n for row in scan.inputs.values() for n in row}
    assert names["read/made.w_0"] == "read/made.w_0"


def test_a_weight_that_a_loop_reads_has_the_axes_of_the_op_inside(model: Built) -> None:
    found = readings(model.eval, ["read/made.w_0", "embedding_0.w_0", "out.w_0"])
    assert found["read/made.w_0"] == found["out.w_0"] != {}
    assert found["embedding_0.w_0"] == {"table": "vd"}


def test_pytorch_names_of_weights_in_a_loop(model: Built, rng) -> None:
    values = {p.name: rng.standard_normal(p.shape) for p in model.eval.parameters() if p.name != "read/made.w_1"}
    found = for_torch(model.eval, {n: v for n, v in values.items() if not n.startswith("read/made") or n.endswith("w_0")})
    assert found["read.norm.running_mean"] is values["read/norm.w_1"]
    assert found["embedding_0.weight"].shape == (7, 2)
    assert (found["out.weight"] == values["out.w_0"].T).all()


def test_a_table_that_a_loop_looks_up_is_no_weight_to_centre(model: Built) -> None:
    assert looked_up(model.eval) == {"embedding_0.w_0"}


def test_a_layer_in_a_loop_has_its_parameters(model: Built) -> None:
    mistakes = Mistakes()
    matching = Matching(model.eval)
    assert {p.name for p in matching.find("read/norm", "match", mistakes, None)} >= {"read/norm.w_0", "read/norm.b_0"}
    assert "batch_norm" in {op.type for op in matching.readers["read/norm.w_0"]}
    assert not mistakes


def test_statistics_in_a_loop_are_told_on_several_devices(model: Built) -> None:
    assert statistics_note(model.eval, 2).startswith("batch_norm on 2 devices")
    assert not statistics_note(model.eval.clone(for_test=True), 2)


def test_statistics_in_a_loop_cannot_be_those_of_all_devices(model: Built) -> None:
    with pytest.raises(PeError, match="sync_batch_norm: 'read/norm' is inside of a loop or condition") as caught:
        sync_batch_norm.run(model.eval, [])
    assert caught.value.at is not None
    test = model.eval.clone(for_test=True)
    assert sync_batch_norm.run(test, [])[0] is test


def test_a_loop_that_looks_for_mistakes_in_the_data_stays(model: Built) -> None:
    kept, _ = dead_code.run(model.eval, [])
    assert "scan" in {op.type for op in kept.top_ops}


def test_a_loss_in_a_condition_that_is_given_probabilities_is_told(built: Callable[[str], Built]) -> None:
    found = built(
        """
        feeds: {x: {shape: [3]}, y: {shape: [1], dtype: int64}, t: {shape: [1], replicate: true}}
        blocks:
          hard: {args: {input: ~}, layers: {cost: {type: softmax_with_cross_entropy, logits: "${input}", label: y}}}
          none: {args: {input: ~}, layers: {cost: {type: reduce_sum, input: "${input}", dim: 1, keep_dim: true}}}
        layers:
          prob: {type: softmax, input: x}
          zero: {type: fill_constant, shape: [1], dtype: float32, value: 0.0}
          late: {type: greater_than, x: t, y: zero}
          cost: {if: late, then: hard, else: none, input: prob}
        fetches: [cost]
        """
    )
    warnings = model_warnings(found.eval, load_model("model.yaml"), ["cost"])
    assert any("makes probabilities of its scores itself" in said for said in warnings)
