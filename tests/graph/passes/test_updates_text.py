"""What updates go through and what starts a gradient: text in, text out."""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError
from pe_cli.graph.passes import customized_gradient, fuse_optimizer
from pe_cli.program.parse import parse_program
from tests.graph.passes.test_text import HEAD, text

TWO = """\
  var rate: float32[1] persistable stop_gradient
  param a: float32[2]
  param b: float32[3]
  var a@GRAD: float32[2] is_data
  var b@GRAD: float32[3] is_data
"""


def sgd(name: str, gradient: str) -> str:
    update = f"sgd(Param={name}, Grad={gradient}, LearningRate=rate) -> ParamOut={name}"
    return f"  optimize {update} vars({name}, {name}@GRAD)\n"


def ops(made: str) -> list[str]:
    return [line.strip() for line in made.splitlines() if "->" in line]


def test_updates_of_one_kind_and_rate_become_one_op_over_lists():
    made, said = text(fuse_optimizer.run, TWO + sgd("a", "a@GRAD") + sgd("b", "b@GRAD"))
    (op,) = ops(made)
    assert op.startswith("optimize fused_sgd(")
    for part in ("Param=[a, b]", "Grad=[a@GRAD, b@GRAD]", "LearningRate=rate", "ParamOut=[a, b]", "vars(a, a@GRAD, b, b@GRAD)"):
        assert part in op
    assert said == "fuse_all_optimizer_ops: 2 updates became 1"


def test_a_decay_that_only_the_update_reads_is_part_of_it():
    decays = "".join(
        f'  optimize l2_decay(Param={n}, Grad={n}@GRAD) -> Out={n}2: float32[{size}] {{"coeff": 0.5}}\n' for n, size in (("a", 2), ("b", 3))
    )
    made, said = text(fuse_optimizer.run, TWO + decays + sgd("a", "a2") + sgd("b", "b2"))
    (op,) = ops(made)
    assert "Grad=[a@GRAD, b@GRAD]" in op
    assert '"decay": 0.5' in op
    assert said == "fuse_all_optimizer_ops: 2 updates became 1, 2 of them with their weight decay"
    kept, _ = text(fuse_optimizer.run, TWO + decays + sgd("a", "a2") + sgd("b", "b2"), ["a2"])
    assert sum(op.startswith("optimize l2_decay") for op in ops(kept)) == 2, "one is fetched, and the other alone has no partner"


def test_an_update_whose_result_is_read_before_the_last_one_stays_where_it_is():
    read = "  optimize scale(X=a) -> Out=seen: float32[2] {\"scale\": 1.0}\n"
    made, said = text(fuse_optimizer.run, TWO + sgd("a", "a@GRAD") + read + sgd("b", "b@GRAD"))
    assert [op.partition("(")[0] for op in ops(made)] == ["optimize sgd", "optimize scale", "optimize sgd"]
    assert said.startswith("fuse_all_optimizer_ops: nothing to join")
    made, _ = text(fuse_optimizer.run, TWO + sgd("a", "a@GRAD") + sgd("b", "b@GRAD") + read)
    assert [op.partition("(")[0] for op in ops(made)] == ["optimize fused_sgd", "optimize scale"]


def test_updates_with_rates_of_their_own_stay_apart():
    program = TWO + "  var slow: float32[1] persistable stop_gradient\n" + sgd("a", "a@GRAD") + sgd("b", "b@GRAD").replace("rate", "slow")
    made, said = text(fuse_optimizer.run, program)
    assert len(ops(made)) == 2
    assert said.endswith("the updates are sgd, and no two of a kind share rate and settings")


LOSS = "  var x: float32[1] is_data\n  forward square(X=x) -> Out=loss: float32[1]\n"
START = '  loss fill_like(X=loss) -> Out=loss@GRAD: float32[1] {"value": 1.0}\n'
BACK = "  backward square_grad(X=x, Out@GRAD=loss@GRAD) -> X@GRAD=x@GRAD: float32[1]\n"


def test_the_gradient_of_the_loss_becomes_a_feed():
    made, said = text(customized_gradient.run, LOSS + START + BACK)
    assert [op.split("(")[0] for op in ops(made)] == ["forward square", "backward square_grad"]
    assert "  var loss@GRAD: float32[1] is_data" in made.splitlines()
    assert said == "customized_gradient: loss@GRAD is fed"


def test_without_a_gradient_of_a_loss_there_is_nothing_to_feed():
    assert text(customized_gradient.run, LOSS)[1] == "customized_gradient: no backward ops"
    program = "  var x: float32[1] is_data\n  var y@GRAD: float32[1] is_data\n" + BACK.replace("loss@GRAD", "y@GRAD")
    with pytest.raises(PeError, match="no gradient of a loss to feed"):
        customized_gradient.run(parse_program(HEAD + program), [])
