"""Passes over the graph of all devices, text in and text out."""

from __future__ import annotations

import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.execute.plan import work_stealing
from pe_cli.graph.final import absorb_sums, check_finite, copy_aliases, share_updates
from pe_cli.graph.replicate import replicate, shared_variables
from pe_cli.graph.text import describe, parse_graph
from pe_cli.program.parse import parse_program

PLACES = [Place("cpu", 0), Place("cpu", 1)]

#: One product and its update, as backward and an optimizer write them.
PROGRAM = """program "p"
block 0
  var x: float32[batch, 3] is_data stop_gradient
  var rate: float32[1] persistable stop_gradient
  param w: float32[3, 2]
  forward mul(X=x, Y=w) -> Out=h: float32[batch, 2]
  forward mean(X=h) -> Out=loss: float32[1]
  loss fill_like(X=loss) -> Out=loss@GRAD: float32[1] {"value": 1.0}
  backward mean_grad(X=h, Out@GRAD=loss@GRAD) -> X@GRAD=h@GRAD: float32[batch, 2]
  backward mul_grad(X=x, Y=w, Out@GRAD=h@GRAD) -> Y@GRAD=w@GRAD: float32[3, 2] vars(w, w@GRAD)
  optimize UPDATE vars(w, w@GRAD)
"""
SGD = PROGRAM.replace("UPDATE", "sgd(Param=w, Grad=w@GRAD, LearningRate=rate) -> ParamOut=w")
FUSED = PROGRAM.replace("UPDATE", "fused_sgd(Param=w, Grad=w@GRAD, LearningRate=rate) -> ParamOut=w")

HEAD = """graph p on cpu:0, cpu:1
   0 forward   0 mul(X=x@0.0, Y=w@0.0) -> Out=h@0.1 op 0
   1 forward   1 mul(X=x@1.0, Y=w@1.0) -> Out=h@1.1 op 0
   2 forward   0 mean(X=h@0.1) -> Out=loss@0.1 op 1
   3 forward   1 mean(X=h@1.1) -> Out=loss@1.1 op 1
   4 loss      0 scale_loss_grad(X=loss@0.1) -> Out=loss@GRAD@0.1 op 2 as scale_loss_grad
   5 loss      1 scale_loss_grad(X=loss@1.1) -> Out=loss@GRAD@1.1 op 2 as scale_loss_grad
   6 backward  0 mean_grad(X=h@0.1, Out@GRAD=loss@GRAD@0.1) -> X@GRAD=h@GRAD@0.1 op 3
   7 backward  1 mean_grad(X=h@1.1, Out@GRAD=loss@GRAD@1.1) -> X@GRAD=h@GRAD@1.1 op 3
   8 backward  0 mul_grad(X=x@0.0, Y=w@0.0, Out@GRAD=h@GRAD@0.1) -> Y@GRAD=w@GRAD@0.1 op 4
   9 backward  1 mul_grad(X=x@1.0, Y=w@1.0, Out@GRAD=h@GRAD@1.1) -> Y@GRAD=w@GRAD@1.1 op 4
"""
REPLICATED = (
    HEAD
    + """\
  10 dist      0 all_reduce(X=[w@GRAD@0.1, w@GRAD@1.1]) -> Out=[w@GRAD@0.2, w@GRAD@1.2]
  11 optimize  0 sgd(Param=w@0.0, Grad=w@GRAD@0.2, LearningRate=rate@0.0) -> ParamOut=w@0.1 after 0, 8 op 5
  12 optimize  1 sgd(Param=w@1.0, Grad=w@GRAD@1.2, LearningRate=rate@1.0) -> ParamOut=w@1.1 after 1, 9 op 5
"""
)
SHARED = (
    HEAD.replace("w@1.0", "w@0.0").replace("cpu:1\n", "cpu:1\nhome w = 0\n")
    + """\
  10 dist      0 all_reduce(X=[w@GRAD@0.1, w@GRAD@1.1]) -> Out=w@GRAD@0.2
  11 optimize  0 sgd(Param=w@0.0, Grad=w@GRAD@0.2, LearningRate=rate@0.0) -> ParamOut=w@0.1 after 0, 1, 8, 9 op 5 as update
"""
)


def graph_of(text: str, program: str = SGD):
    return parse_graph(text, parse_program(program))


def test_replication_sums_gradients_and_updates_everywhere():
    assert describe(replicate(parse_program(SGD), PLACES, BuildStrategy())) == REPLICATED


def test_an_update_that_devices_share_is_done_once():
    graph = graph_of(REPLICATED)
    shared = shared_variables(graph.program, PLACES, BuildStrategy())
    assert shared == {"w"}
    assert describe(share_updates.run(graph, shared, ["loss"])) == SHARED
    assert describe(graph) == REPLICATED, "the graph itself stays as it was"


def test_a_sum_that_is_fetched_reaches_every_device():
    made = describe(share_updates.run(graph_of(REPLICATED), {"w"}, ["w@GRAD"]))
    assert "-> Out=[w@GRAD@0.2, w@GRAD@1.2]" in made
    assert made.count(" sgd(") == 1


def test_devices_with_memory_of_their_own_share_nothing():
    graph = graph_of(REPLICATED)
    assert share_updates.run(graph, (), ["loss"]) is graph


def test_a_sum_passes_through_the_first_device_with_samples():
    graph = replicate(parse_program(SGD), PLACES, BuildStrategy(), active=[1])
    made = describe(share_updates.run(graph, {"w"}, ["loss"]))
    assert "all_reduce(X=w@GRAD@1.1) -> Out=w@GRAD@0.1, Through=w@GRAD@1.2" in made


def test_an_update_adds_gradients_up_where_its_op_can():
    plain = graph_of(SHARED)
    assert absorb_sums.run(plain) is plain, "sgd of one parameter cannot"
    made = absorb_sums.run(graph_of(SHARED.replace(" sgd(", " fused_sgd("), FUSED))
    assert describe(made) == SHARED.replace(" sgd(", " fused_sgd(").replace(
        "  10 dist      0 all_reduce(X=[w@GRAD@0.1, w@GRAD@1.1]) -> Out=w@GRAD@0.2\n  11", "  10"
    ).replace(
        "Grad=w@GRAD@0.2, LearningRate=rate@0.0", "Grad=w@GRAD@0.1, LearningRate=rate@0.0, Grad@ADDENDS=w@GRAD@1.1"
    )


def test_a_sum_that_two_updates_read_stays():
    """An update that adds gradients up itself leaves no sum for another one to read."""
    another = "  optimize fused_sgd(Param=u, Grad=w@GRAD, LearningRate=rate) -> ParamOut=u vars(u, w@GRAD)\n"
    program = parse_program(FUSED.replace("  forward mul(", "  param u: float32[3, 2]\n  forward mul(", 1) + another)
    graph = share_updates.run(replicate(program, PLACES, BuildStrategy()), {"w", "u"}, ["loss"])
    made = describe(graph)
    assert made.count(" as update") == 2
    assert "-> Out=w@GRAD@0.2\n" in made, "one copy of the sum is enough for both"
    assert absorb_sums.run(graph) is graph


def test_a_sum_that_every_device_reads_stays():
    graph = share_updates.run(graph_of(REPLICATED.replace(" sgd(", " fused_sgd("), FUSED), {"w"}, ["w@GRAD"])
    assert absorb_sums.run(graph) is graph


VIEWS = """program "v"
block 0
  var x: float32[batch, 6] is_data stop_gradient
  param w: float32[3, 2]
  forward reshape(X=w) -> Out=v: float32[2, 3] {"shape": [2, 3]}
  forward reshape(X=x) -> Out=a: float32[batch, 2, 3] {"shape": [-1, 2, 3]}
"""


def test_a_view_of_what_stays_is_a_copy():
    graph = replicate(parse_program(VIEWS), PLACES[:1], BuildStrategy())
    assert describe(copy_aliases.run(graph)) == (
        "graph v on cpu:0\n"
        "   0 forward   0 reshape(X=w@0.0) -> Out=v@0.1 op 0 as copy\n"
        "   1 forward   0 reshape(X=x@0.0) -> Out=a@0.1 op 1\n"
    )


@pytest.mark.parametrize(
    "line", ["forward relu(X=h) -> Out=v", "forward relu(X=h) -> Out=a"], ids=["written twice", "both"]
)
def test_a_view_of_what_is_written_again_is_a_copy(line):
    program = (
        VIEWS.replace("  param w: float32[3, 2]\n", "  var h: float32[2, 3]\n  param w: float32[3, 2]\n")
        + f"  {line}\n"
    )
    program = program.replace("reshape(X=w)", "reshape(X=h)")
    made = describe(copy_aliases.run(replicate(parse_program(program), PLACES[:1], BuildStrategy())))
    assert made.count("as copy") == 1


def test_a_program_without_such_views_stays_as_it_is():
    graph = graph_of(SHARED)
    assert copy_aliases.run(graph) is graph


def test_who_reads_a_result_waits_for_its_check():
    made = describe(check_finite.run(graph_of(SHARED), ["loss"]))
    lines = [line[5:] for line in made.splitlines() if "@0" in line and "@1." not in line]
    assert lines[:6] == [
        "forward   0 mul(X=x@0.0, Y=w@0.0) -> Out=h@0.1 op 0",
        "forward   0 check_nan_inf(X=h@0.1) -> Out=h@0.2 op 0 as check",
        "forward   0 mean(X=h@0.2) -> Out=loss@0.1 op 1",
        "forward   0 check_nan_inf(X=loss@0.1) -> Out=loss@0.2 op 1 as check",
        "loss      0 scale_loss_grad(X=loss@0.2) -> Out=loss@GRAD@0.1 op 2 as scale_loss_grad",
        "loss      0 check_nan_inf(X=loss@GRAD@0.1) -> Out=loss@GRAD@0.2 op 2 as check",
    ]
    assert "optimize  0 check_nan_inf(X=w@0.1) -> Out=w@0.2" in made, "what stays is looked at, too"


def test_results_that_nobody_reads_are_not_checked():
    made = describe(check_finite.run(graph_of(SHARED), []))
    assert "check_nan_inf(X=loss@0.1)" in made, "the loss gradient reads its shape"
    program = VIEWS + "  forward relu(X=x) -> Out=r: float32[batch, 6]\n"
    graph = replicate(parse_program(program), PLACES[:1], BuildStrategy())
    assert "check" not in describe(check_finite.run(graph, []))
    assert describe(check_finite.run(graph, ["r"])).count("check_nan_inf(X=r@0.1)") == 1


def test_the_last_products_are_offered_to_others():
    graph = graph_of(SHARED)
    rows = work_stealing.WORTH_HELP // 6
    types = [
        {
            n: v.type.with_shape(rows, *v.shape[1:]) if v.shape[:1] == (-1,) else v.type
            for n, v in graph.program.global_block().vars.items()
        }
        for _ in PLACES
    ]
    made = describe(work_stealing.steal_last_gradients(graph, types))
    assert [line[5:26] for line in made.splitlines() if line.endswith(" helped")] == [
        "backward  0 mul_grad(",
        "backward  1 mul_grad(",
    ]
    assert made.replace(" helped", "") == SHARED
    few = [{n: TensorType((4, *t.shape[1:])) if t.shape[:1] == (rows,) else t for n, t in of.items()} for of in types]
    assert work_stealing.steal_last_gradients(graph, few) is graph, "the step is over before help comes"


FROZEN = """program "f"
block 0
  var x: float32[batch, 64] is_data stop_gradient
  param big: float32[64, 64]
  param w: float32[64, 1]
  forward mul(X=x, Y=big) -> Out=h: float32[batch, 64]
  forward mul(X=h, Y=w) -> Out=y: float32[batch, 1]
  forward mean(X=y) -> Out=loss: float32[1]
  loss fill_like(X=loss) -> Out=loss@GRAD: float32[1] {"value": 1.0}
  backward mean_grad(X=y, Out@GRAD=loss@GRAD) -> X@GRAD=y@GRAD: float32[batch, 1]
  backward mul_grad(X=h, Y=w, Out@GRAD=y@GRAD) -> Y@GRAD=w@GRAD: float32[64, 1] vars(w, w@GRAD)
"""


def test_nobody_helps_with_forward_work():
    """The little backward work of a net that is frozen in front is less than what may be offered; what is before it is forward."""
    graph = replicate(parse_program(FROZEN), PLACES, BuildStrategy())
    rows = work_stealing.WORTH_HELP // 1000
    block = graph.program.global_block()
    types = [{n: v.type.with_shape(rows, *v.shape[1:]) if v.shape[:1] == (-1,) else v.type for n, v in block.vars.items()}] * 2
    helped = [node for node in work_stealing.steal_last_gradients(graph, types).nodes if getattr(node, "helped", False)]
    assert [(node.title, node.role.value, node.device) for node in helped] == [("mul_grad", "backward", 0), ("mul_grad", "backward", 1)]
