"""DistributeTranspiler against what the original's did: who gets what, in which order, and the ops of all programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.transpiler import GeoSgdTranspiler
from pe_cli.paddle.fluid.transpiler.distribute_transpiler import VarBlock, slice_variable
from pe_cli.paddle.fluid.transpiler.ps_dispatcher import HashName, RoundRobin
from tests.paddle.pserver_models import built

RECORD = json.loads((Path(__file__).parent / "goldens" / "transpiled.json").read_text())
SERVERS = ["127.0.0.1:6174", "127.0.0.1:6175", "127.0.0.1:6176"]
MADE = [pytest.param(n, c, id=n) for n, c in RECORD["cases"].items() if not c["raises"]]
REFUSED = [pytest.param(n, c, id=n) for n, c in RECORD["cases"].items() if c["raises"]]
DISPATCHERS = {"RoundRobin": RoundRobin, "HashName": HashName}
#: Ops of the original that stand for one op here: a schedule's after its counter, a decay's, and the sum of row-sparse gradients.
SCHEDULES = {
    ("cast", "scale", "floor", "fill_constant", "elementwise_pow", "scale"): ("exponential_decay",),
    ("cast", "fill_constant", "elementwise_pow", "scale", "elementwise_min", "scale"): ("scale", "noam_decay"),
}
SPREAD = ["fill_constant", "concat", "concat", "scatter", "scale"]


class Shaped:
    def __init__(self, name, shape):
        self.name, self.shape = name, shape


def cut(name, case):
    """Return (transpiler, main, startup) of a recorded case."""
    model, optimizer = name.split("/")[:2]
    args = case["args"]
    main, startup, _ = built(model, optimizer)
    config = fluid.DistributeTranspilerConfig()
    config.slice_var_up, config.split_method = args["slice_var_up"], DISPATCHERS[args["split_method"]]
    config.sync_mode = args["sync_mode"]
    config.runtime_split_send_recv, config.half_async = args["runtime_split_send_recv"], args["half_async"]
    config.mode, config.enable_dc_asgd = args["mode"], args["enable_dc_asgd"]
    transpiler = fluid.DistributeTranspiler(config)
    config.min_block_size = args["min_block_size"]
    servers = ",".join(SERVERS[: args["servers"]])
    transpiler.transpile(args["trainer_id"], main, servers, args["trainers"], args["sync_mode"], startup)
    return transpiler, main, startup


def types(block):
    return [op.type for op in block.ops]


def ours(ops, sparse):
    """Return the ops of a server's block with this project's names."""
    ops = list(ops)
    if tuple(ops[1:]) in SCHEDULES:
        return [ops[0], *SCHEDULES[tuple(ops[1:])]]
    if ops[2:4] == ["scale", "sum"]:
        return [*(SPREAD if sparse else ops[:2]), "l2_decay", *ops[4:]]
    return ["merge_selected_rows", *ops[1:]] if sparse and ops[0] == "sum" else ops


def test_variables_are_cut_as_the_original_cuts_them():
    assert str(VarBlock("v", 1, 6)) == "v:1:6"
    for shape, servers, smallest, sizes in RECORD["slice_variable"]:
        expected = [f"v:{i}:{size}" for i, size in enumerate(sizes)]
        assert slice_variable([Shaped("v", shape)], servers, smallest) == expected


@pytest.mark.parametrize(("name", "case"), MADE)
def test_who_gets_what_in_which_order(name, case):
    transpiler, main, startup = cut(name, case)
    found = transpiler.param_grad_ep_mapping
    assert {e: [[v.name, list(v.shape)] for v in m["params"]] for e, m in found.items()} == case["params"]
    sent = {g: v.name for e, m in found.items() for (g, _), v in zip(case["grads"][e], m["grads"], strict=True)}
    if "globalclip" not in name:
        assert all(theirs == mine for theirs, mine in sent.items())
    program = transpiler.get_trainer_program(wait_port=False)
    assert program is main
    ops = program.global_block().ops
    sends = [[op.input("X"), op.attr("epmap")] for op in ops if op.type == "send"]
    assert sends == [[[sent.get(n, n) for n in names], where] for names, where in case["send"]]
    assert [[op.output("Out"), op.attr("epmap")] for op in ops if op.type == "recv"] == case["recv"]
    known = set(case["trainer_ops"]) | {"send", "recv"}
    assert [op.type for op in ops if op.type in known] == case["trainer_ops"]
    if "startup_ops" in case:
        assert sorted(types(startup.global_block())) == case["startup_ops"]
    assert not any(op.type in ("sgd", "momentum", "adam", "l2_decay", "increment") for op in ops)


@pytest.mark.parametrize(("name", "case"), [p for p in MADE if "servers" in p.values[1]])
def test_programs_of_servers(name, case):
    transpiler, _, _ = cut(name, case)
    for server, expected in case["servers"].items():
        main, startup = transpiler.get_pserver_programs(server)
        listen = main.global_block().ops[0]
        assert types(main.global_block()) == ["listen_and_serv"]
        for key, value in expected["listen"].items():
            if "globalclip" not in name:
                assert (sorted(listen.attr(key)) if key == "grad_to_block_id" else listen.attr(key)) == value, key
        assert [b.parent_idx for b in main.blocks[1:]] == expected["parents"][1:]
        table = [p for p, _ in case["params"][server] if p.startswith("table")]
        last = len(main.blocks) - 1
        for block, ops in zip(main.blocks[1:], expected["blocks"][1:], strict=True):
            sparse = "emb_sparse" in name and bool(table) and block.idx == last
            assert types(block) == ours(ops, sparse), f"block {block.idx}"
        made = sorted([op.output("Out")[0], op.all_attrs().get("shape")] for op in startup.global_block().ops)
        assert made == expected["startup"]


@pytest.mark.parametrize(("name", "case"), REFUSED)
def test_what_the_original_cannot_do(name, case):
    if "HashName" in name or "distributed" in name:  # works here
        transpiler, _, _ = cut(name, case)
        assert transpiler.get_trainer_program(wait_port=False).global_block().ops
        return
    kinds = {"ValueError": ValueError, "EnforceNotMet": RuntimeError}
    with pytest.raises(kinds[case["raises"].partition(":")[0]]):
        cut(name, case)[0].get_pserver_programs(SERVERS[0])


def test_a_hash_gives_a_gradient_to_the_server_of_its_parameter():
    dispatcher = HashName(SERVERS)
    names = [f"fc_{i}.w_0.block{j}" for i in range(20) for j in range(3)]
    gradients = [n.replace(".block", "@GRAD@CLIP_0.block") + ".trainer_3" for n in names]
    where = dispatcher.dispatch([Shaped(n, ()) for n in names])
    assert where == dispatcher.dispatch([Shaped(n, ()) for n in gradients])
    assert set(where) == set(SERVERS)


def test_pieces_of_a_parameter_on_one_server_have_a_state_each():
    case = {"args": {**RECORD["cases"]["mlp/SGD/slice=1/RoundRobin/8192/sync"]["args"], "min_block_size": 64, "split_method": "HashName"}}
    transpiler, _, _ = cut("mlp/Adam+decay", case)
    seen = []
    for server in SERVERS[:2]:
        main, startup = transpiler.get_pserver_programs(server)
        updates = [op for block in main.blocks for op in block.ops if op.type == "adam"]
        moments = [op.input("Moment1")[0] for op in updates]
        assert len(set(moments)) == len(moments)
        seen += [op.input("Param")[0] for op in updates]
        variables = main.global_block().vars
        for op in updates:
            assert variables[op.input("Moment1")[0]].shape == variables[op.input("Param")[0]].shape
        made = {"tmp_3"} | {n for op in startup.global_block().ops for n in op.output_names()}  # a schedule makes the rate
        assert {n for op in updates for n in op.input_names() if not n.endswith("@GRAD") and "@GRAD.block" not in n} <= made
    assert sorted(seen) == sorted(p.name for m in transpiler.param_grad_ep_mapping.values() for p in m["params"])


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        pytest.param({"pservers": "here"}, ValueError, "'here' is no server", id="no port"),
        pytest.param({"pservers": "a:1,a:1"}, ValueError, "a server twice", id="a server twice"),
        pytest.param({"trainer_id": 2}, ValueError, r"trainer_id must be in \[0, 2\), got 2", id="no such trainer"),
        pytest.param({"trainers": "2"}, TypeError, "trainers is the number of trainers", id="a text for a number"),
    ],
)
def test_bad_arguments(arguments, kind, message):
    main, startup, _ = built("mlp", "SGD")
    given = {"trainer_id": 0, "pservers": "127.0.0.1:6174", "trainers": 2, **arguments}
    with pytest.raises(kind, match=message):
        fluid.DistributeTranspiler().transpile(program=main, startup_program=startup, **given)


def regularized():
    """Return (main, startup): layers of which two decay their weights, one learns nothing, and two have a rate of their own."""
    main, startup, decay = fluid.Program(), fluid.Program(), fluid.regularizer
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 129]), fluid.data("y", [None, 1], "int64")
        first = fluid.ParamAttr("first", learning_rate=0.5, regularizer=decay.L1Decay(1e-4))
        hidden = fluid.layers.fc(x, 70, act="relu", param_attr=first, bias_attr=False)
        hidden = fluid.layers.fc(hidden, 256, act="relu", param_attr=fluid.ParamAttr("second", trainable=False))
        third, bias = fluid.ParamAttr("third", regularizer=decay.L2Decay(1e-4)), fluid.ParamAttr(learning_rate=2.0)
        hidden = fluid.layers.fc(hidden, 100, act="relu", param_attr=third, bias_attr=bias)
        loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 10, act="softmax"), y))
        fluid.optimizer.SGD(0.1).minimize(loss)
    return main, startup


def test_parameters_that_decay_are_dealt_first_and_updated_in_the_order_of_names():
    """What PaddlePaddle 1.8.5 makes of the same network."""
    main, startup = regularized()
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, ",".join(SERVERS[:2]), 2, True, startup)
    found = [[v.name for v in m["params"]] for m in transpiler.param_grad_ep_mapping.values()]
    assert found == [["first", "third.block1", "fc_2.b_0", "fc_3.w_0"], ["third.block0", "fc_1.b_0", "fc_3.b_0"]]
    server, _ = transpiler.get_pserver_programs(SERVERS[0])
    blocks = ["fc_2.b_0@GRAD:2", "fc_3.w_0@GRAD:3", "first@GRAD:4", "third@GRAD.block1:5"]
    assert sorted(server.global_block().ops[0].attr("grad_to_block_id")) == blocks
    transpiler.get_trainer_program(wait_port=False)
    assert "learning_rate_0" not in {n for op in startup.global_block().ops for n in op.output_names()}


def test_one_trainer_and_more_servers_than_blocks():
    """As in PaddlePaddle 1.8.5: gradients of one trainer are summed and averaged, too, and a server without work has an empty block."""
    main, startup = fluid.Program(), fluid.Program()
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        x, y = fluid.data("x", [None, 13]), fluid.data("y", [None, 1])
        fluid.optimizer.SGD(0.1).minimize(fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, 1), y)))
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(0, main, ",".join(SERVERS), 1, True, startup)
    programs = [transpiler.get_pserver_programs(server)[0] for server in SERVERS]
    assert [[types(b) for b in p.blocks[1:]] for p in programs] == [[["sum", "scale", "sgd"]], [["sum", "scale", "sgd"]], [[]]]
    assert programs[0].global_block().ops[0].input("X") == ["fc_0.b_0@GRAD.trainer_0"]
    assert [p.global_block().ops[0].attr("optimize_blocks") for p in programs] == [[1], [1], [1]]


def test_a_program_without_updates_leaves_servers_nothing_to_do():
    program, transpiler = fluid.Program(), fluid.DistributeTranspiler()
    with pytest.warns(UserWarning, match="updates no parameter: call the optimizer's minimize"):
        transpiler.transpile(0, program, "127.0.0.1:6174", startup_program=fluid.Program())
    main, startup = transpiler.get_pserver_programs("127.0.0.1:6174")
    found = [[op.type for op in p.global_block().ops] for p in (program, main, startup)]
    assert found == [["send_barrier", "fetch_barrier"], ["listen_and_serv"], []], "what the original makes of it"


def test_configurations_that_are_refused():
    config = fluid.DistributeTranspilerConfig()
    with pytest.raises(ValueError, match="cannot be True while sync_mode is"):
        config.runtime_split_send_recv = True
    with pytest.raises(ValueError, match="sync_mode can't be None"):
        config.sync_mode = None
    with pytest.raises(AttributeError, match="no 'slice_up'"):
        config.slice_up = True
    config.split_method = dict
    with pytest.raises(AssertionError, match="must be a PSDispatcher"):
        fluid.DistributeTranspiler(config)
    config.split_method, config.min_block_size = RoundRobin, 8191
    with pytest.raises(AssertionError, match="min_block_size must be at least 8192"):
        fluid.DistributeTranspiler(config)
    main, startup, _ = built("mlp", "SGD")
    config.min_block_size, config.geo_sgd_mode = 8192, True
    with pytest.raises(ValueError, match="geo_sgd_mode is of another transpiler"):
        fluid.DistributeTranspiler(config).transpile(0, main, SERVERS[0], 1, True, startup)
    config.geo_sgd_mode, config.enable_dc_asgd = False, True
    with pytest.raises(AssertionError, match="none does with sync_mode"):
        fluid.DistributeTranspiler(config).transpile(0, main, SERVERS[0], 1, True, startup)
    with pytest.raises(ValueError, match="call transpile first"):
        fluid.DistributeTranspiler().get_trainer_program()


@pytest.mark.parametrize("model", ["mlp", "emb_sparse"])
def test_geo_trainers_keep_their_updates_and_servers_add_differences(model):
    main, startup, _ = built(model, "SGD")
    updates = [op for op in main.global_block().ops if op.type == "sgd"]
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode, config.geo_sgd_mode = False, True
    transpiler = GeoSgdTranspiler(config)
    transpiler.transpile(0, main, ",".join(SERVERS[:2]), 2, False, startup)
    trainer = transpiler.get_trainer_program(wait_port=False)
    assert [op for op in trainer.global_block().ops if op.type == "sgd"] == updates
    send = trainer.global_block().ops[-1]
    assert (send.type, send.input("X"), send.attr("send_varnames")) == (
        ("send", ["w"], ["table"]) if model == "emb_sparse" else ("send", [], [])
    )
    assert types(startup.global_block())[-1] == "send"
    for server in SERVERS[:2]:
        program, first = transpiler.get_pserver_programs(server)
        names = [v.name for v in transpiler.param_opt_ep_mapping[server]["params"]]
        assert program.global_block().ops[0].attr("distributed_mode") == 3
        assert program.global_block().ops[0].attr("grad_to_block_id") == [f"{n}.delta:{i + 1}" for i, n in enumerate(names)]
        assert [types(b) for b in program.blocks[1:]] == [["fill_constant", "sgd"] if n == "table" else ["sum"] for n in names]
        assert {n for op in first.global_block().ops for n in op.output_names()} == set(names)
    info = transpiler.vars_info
    assert all(len(i["var_names"]) == len(i["epmap"]) == len(i["sections"]) for i in info.values())
