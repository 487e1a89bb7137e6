"""Recomputation: the same bits, less memory, and what is repeated."""

from __future__ import annotations

import itertools
import re

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.execute.diagnostics.estimate import estimate_memory
from pe_cli.graph.passes import recompute
from pe_cli.program.ir import Role
from pe_cli.program.parse import parse_program
from pe_cli.program.serialize import from_json, to_json
from pe_cli.program.text_forms import to_string
from tests.graph.passes.support import MODELS, minimise, same, startup, train
from tests.rotation import on_its_day

HEAD = 'program "p"\nblock 0\n'
CHAIN = """\
  var x: float32[batch, 4] is_data stop_gradient
  var lr: float32[1] persistable stop_gradient
  param a: float32[4, 4]
  param b: float32[4, 4]
  forward mul(X=x, Y=a) -> Out=h: float32[batch, 4] segment(1)
  forward tanh(X=h) -> Out=t: float32[batch, 4] segment(1)
  forward {op}(X=t) -> Out=u: float32[batch, 4]{more} segment(1)
  forward mul(X=u, Y=b) -> Out=v: float32[batch, 4] segment(2)
  forward mean(X=v) -> Out=loss: float32[1] segment(2)
"""
MLP = """\
feeds: {image: {shape: [16]}, label: {shape: [1], dtype: int64}}
blocks:
  unit:
    layers:
      wide: {type: fc, size: 32, act: relu}
      drop: {type: dropout, dropout_prob: 0.3}
      norm: {type: batch_norm, act: tanh}
layers:
  inside: {type: fc, input: image, size: 32}
  part: {block: unit, repeat: 4}
  logits: {type: fc, size: 5}
  cost: {type: softmax_with_cross_entropy, label: label}
  loss: {type: mean}
"""


def done(op: str, more: str = "", fetches: tuple[str, ...] = ()) -> tuple[list[str], str]:
    """Return the lines of the backward pass of a chain, and what the pass says."""
    program = parse_program(HEAD + CHAIN.format(op=op, more=more))
    minimise(program, "loss")
    made, said = recompute.run(program, fetches)
    return [line.strip() for line in to_string(made).splitlines() if line.strip().startswith("backward")], said


def test_what_is_inside_a_segment_is_computed_again_once_its_gradient_is_there():
    lines, said = done("square")
    gate, mul, tanh, *_ = [line for line in lines if "AGAIN" in line]
    assert re.match(r"backward after\(X=x, After=u@GRAD\) -> Out=x@AGAIN_0", gate)
    assert mul.startswith("backward mul(X=x@AGAIN_0, Y=a) -> Out=h@AGAIN_0")
    assert tanh.startswith("backward tanh(X=h@AGAIN_0) -> Out=t@AGAIN_0")
    assert sum("square(" in line for line in lines) == 0, "what the next segment reads is kept"
    assert any(line.startswith("backward square_grad(X=t@AGAIN_0") for line in lines)
    assert said == "recompute: 2 ops of 1 segments are done again in the backward pass"


def test_a_dropout_is_given_once_more_by_its_mask():
    program = parse_program(
        HEAD
        + CHAIN.format(op="dropout", more=", Mask=m: uint8[batch, 4]").replace(
            "  forward mul(X=u, Y=b)", "  forward square(X=u) -> Out=w: float32[batch, 4] segment(1)\n  forward mul(X=w, Y=b)"
        )
    )
    minimise(program, "loss")
    made, _ = recompute.run(program, ())
    again = [op for op in made.global_block().ops if op.type == "dropout_again"]
    assert [op.inputs for op in again] == [{"X": ["t@AGAIN_0"], "Mask": ["m"]}]


def test_what_is_fetched_is_kept():
    lines, said = done("square", fetches=("h", "t"))
    assert not any("AGAIN" in line for line in lines)
    assert said == "recompute: the backward pass reads nothing that could be computed again"


def test_what_depends_on_a_parameter_that_was_updated_by_then_is_kept():
    program = parse_program(HEAD + CHAIN.format(op="square", more=""))
    minimise(program, "loss")
    block = program.global_block()
    first = next(i for i, op in enumerate(block.ops) if op.role is Role.BACKWARD)
    with program.role(Role.OPTIMIZE):
        block.append_op("scale", {"X": "a"}, {"Out": "a"}, {"scale": 2.0}, index=first)
    made, _ = recompute.run(program, ())
    again = [op for op in made.global_block().ops if any("AGAIN" in n for n in op.output_names())]
    assert [op.type for op in again] == ["after", "tanh"]
    assert again[0].inputs["X"] == ["h"]


def test_segments_are_in_both_forms_of_a_program():
    program = parse_program(HEAD + CHAIN.format(op="square", more=""))
    for made in (parse_program(to_string(program)), from_json(to_json(program)), program.clone()):
        assert [op.segment for op in made.global_block().ops] == [1, 1, 1, 2, 2]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Programs of a chain of blocks, by how they are to be recomputed; each is made once."""
    folder = tmp_path_factory.mktemp("recompute")
    (folder / "model.yaml").write_text(MLP)

    def get(wish: str, model: str = "model.yaml", more: str = "") -> object:
        (folder / "run.yaml").write_text(
            f"model: {model}\nfeeds: {{image: image, label: label}}\n"
            "train:\n  loss: loss\n  epochs: 1\n  batch_size: 8\n  optimizer: {type: Momentum, momentum: 0.9, learning_rate: 0.05}\n"
            + (f"  recompute: {wish}\n" if wish else "")
            + more
        )
        return load_and_build(folder / "run.yaml")[1]

    return get


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("wish", ["blocks", "{every: 1}", "{every: 5}", "[part/1/drop, part/2/wide]"])
def test_no_bit_changes(made, wish: str, devices: int):
    def feed(rng):
        return {"image": rng.normal(size=(8, 16)).astype("float32"), "label": rng.integers(0, 5, (8, 1))}

    plain, again = made(""), made(wish)
    assert any("AGAIN" in n for n in _names(again, devices)), "something is repeated"
    same(*(train(b.train, startup(b.startup), feed, ["loss"], devices) for b in (plain, again)))


def _names(built, devices: int) -> list[str]:
    from pe_cli.graph.compile import Purpose, compile_program

    stages = compile_program(built.train, Purpose([Place("cpu", d) for d in range(devices)]), ["loss"])
    return list(stages.fused.global_block().vars)


@on_its_day(1, of=3)
@pytest.mark.parametrize("switches", [(), ("sync_batch_norm",), ("no_fusions",)], ids=lambda s: s[0] if s else "as shipped")
def test_no_bit_of_a_residual_net_changes(made, switches: tuple[str, ...]):
    def feed(rng):
        return {"image": rng.normal(size=(4, 3, 32, 32)).astype("float32"), "label": rng.integers(0, 10, (4, 1))}

    off = dict.fromkeys(("fuse_bn_add_act_ops", "fuse_bn_act_ops", "fuse_bn_statistics", "fuse_bn_conv", "simplify"), False)
    strategy = off if "no_fusions" in switches else dict.fromkeys(switches, True)
    model = str(MODELS / "resnet20.yaml")
    plain, again = made("", model), made("blocks", model)
    same(*(train(b.train, startup(b.startup), feed, ["loss"], 2, 2, **strategy) for b in (plain, again)))


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_of_a_residual_net_is_below_half(made, threads: int):
    model = str(MODELS / "resnet20.yaml")
    sizes = []
    for wish in ("", "{every: 6}"):
        program = made(wish, model).train
        found = estimate_memory(program, [Place("cpu", 0)], 32, build=BuildStrategy(), fetches=["loss"], threads=threads)
        sizes.append(found[0].temporaries)
    assert sizes[1] < sizes[0] / 2


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("[part/9/wide]", "there is no layer 'part/9/wide'"),
        ("[loss]", "nothing is left behind these layers"),
        ("{every: 0}", "must be blocks"),
        ("all", "must be blocks"),
    ],
)
def test_wishes_that_nothing_can_act_on(made, wish: str, said: str):
    with pytest.raises(PeError, match=re.escape(said)):
        made(wish)


def test_a_model_without_blocks(made, tmp_path):
    flat = tmp_path / "flat.yaml"
    flat.write_text(
        "feeds: {image: {shape: [16]}, label: {shape: [1], dtype: int64}}\n"
        "layers:\n"
        "  logits: {type: fc, input: image, size: 5}\n"
        "  cost: {type: softmax_with_cross_entropy, label: label}\n"
        "  loss: {type: mean}\n"
    )
    with pytest.raises(PeError, match="the model has no blocks"):
        made("blocks", str(flat))


def test_accumulated_parts_are_repeated_too(made):
    built = made("blocks", more="  accumulate: 2\n")
    (phase,) = built.phases
    assert phase.parts is not None
    for program in (phase.program, phase.parts.program):
        numbers = [op.segment for op in program.global_block().ops if op.role is Role.FORWARD]
        assert max(numbers) > 1
        assert all(a <= b for a, b in itertools.pairwise(n for n in numbers if n))
