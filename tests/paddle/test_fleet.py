"""fleet: one script for workers and servers, which a role tells apart."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.incubate.fleet.base import role_maker
from pe_cli.paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import FleetTranspiler, StrategyFactory
from tests.paddle.forked_processes import run_copies
from tests.paddle.pserver_job import Job
from tests.paddle.pserver_models import MODELS, batch
from tests.rotation import on_its_day

SCRIPT = """
import sys
import numpy as np
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker
from pe_cli.paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler import StrategyFactory, fleet
from tests.paddle.pserver_models import MODELS, batch
kind, folder = sys.argv[1:3]
strategy = {
    "sync": StrategyFactory.create_sync_strategy, "async": StrategyFactory.create_async_strategy,
    "half": StrategyFactory.create_half_async_strategy, "geo": lambda: StrategyFactory.create_geo_strategy(2),
}[kind]()
fleet.init(PaddleCloudRoleMaker())
loss = MODELS["emb_sparse"]()
fleet.distributed_optimizer(fluid.optimizer.Momentum(0.1, 0.9), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server(*sys.argv[3:])
    fleet.run_server()
else:
    fleet.init_worker()
    executor = fluid.Executor(fluid.CPUPlace())
    program = fleet.main_program
    if kind != "geo":
        executor.run(fleet.startup_program)
    if kind == "sync":
        program = fluid.CompiledProgram(program).with_data_parallel(
            loss.name, strategy.get_build_strategy(), strategy.get_execute_strategy()
        )
    for i in range(4):
        executor.run(program, batch("emb_sparse", fleet.worker_index(), i), [loss])
    if fleet.is_first_worker():
        fleet.save_persistables(executor, folder)
        fleet.save_inference_model(executor, folder + "-model", ["w", "y"], [loss])
    fleet.stop_worker()
"""


def run(kind, folder, *, workers=2, servers=2, first=()):
    """Run the script as processes; all of them have to end well."""
    job = Job(servers=servers).placed()
    common = {
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(job.endpoints), "PADDLE_TRAINERS_NUM": str(workers),
        "FLAGS_rpc_deadline": "60000", "CPU_NUM": "1",
    }  # fmt: skip
    given = [{"TRAINING_ROLE": "TRAINER", "PADDLE_TRAINER_ID": str(i)} for i in range(workers)]
    given += [{"TRAINING_ROLE": "PSERVER", "POD_IP": e.split(":")[0], "PADDLE_PORT": e.split(":")[1]} for e in job.endpoints]
    codes, ends = run_copies(SCRIPT, [({**common, **role}, [kind, folder, *first]) for role in given])
    assert codes == [0] * len(given)
    assert max(ends[workers:]) - max(ends[:workers]) < 5, "servers end when the last worker has left"


def check_loaded(folder):
    """Check that three servers together have what was saved."""
    seen = {}
    for i in range(3):
        fleet, scope = FleetTranspiler(), fluid.Scope()
        fleet.init(role_maker.UserDefinedRoleMaker(i, role_maker.Role.SERVER, 2, ["a:1", "b:2", "c:3"]))
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.unique_name.guard(), fluid.scope_guard(scope):
            loss = MODELS["emb_sparse"]()
            config = fluid.DistributeTranspilerConfig()
            optimizer = fleet.distributed_optimizer(fluid.optimizer.Momentum(0.1, 0.9), config)
            optimizer.minimize(loss)
            fleet.init_server(str(folder))
        for each in fleet.transpiler.kept(fleet.server_endpoints()[i]):
            seen.setdefault(each.whole, {})[each.begin or 0] = scope.read(each.name)
    whole = fluid.Program()
    for name, parts in seen.items():
        value = np.concatenate([parts[begin] for begin in sorted(parts)])
        whole.global_block().create_var(name=name, shape=value.shape, dtype="float32", persistable=True)
        seen[name] = value
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(fluid.Executor(fluid.CPUPlace()), str(folder), whole)
        for name, value in seen.items():
            np.testing.assert_array_equal(value, fluid.global_scope().read(name))
    assert {"table", "table_velocity_0", "fc_0.w_0", "fc_0.w_0_velocity_0", "learning_rate_0"} <= set(seen)
    assert seen["table"].shape == seen["table_velocity_0"].shape == (1000, 16)
    assert np.count_nonzero(seen["table_velocity_0"].any(axis=1)) > 50, "rows of some ids have been learned"


def check_model(folder):
    """Check that the saved part of the program runs in one process, with the table that servers had; against NumPy."""
    executor, scope = fluid.Executor(fluid.CPUPlace()), fluid.Scope()
    with fluid.scope_guard(scope):
        program, feeds, fetches = fluid.io.load_inference_model(f"{folder}-model", executor)
        values = {v.name: np.array(scope.read(v.name), "f8") for v in program.list_vars() if v.persistable}
        fed = batch("emb_sparse", 0, 9)
        (found,) = executor.run(program, {name: fed[name] for name in feeds}, fetches)
    words, lengths, label = np.array(fed["w"])[:, 0], fed["w"].recursive_sequence_lengths()[0], fed["y"][:, 0]
    summed = np.stack([part.sum(0) for part in np.split(values["table"][words], np.cumsum(lengths)[:-1])])
    z = np.tanh(summed @ values["fc_0.w_0"] + values["fc_0.b_0"]) @ values["fc_1.w_0"] + values["fc_1.b_0"]
    p = np.exp(z - z.max(1, keepdims=True))
    expected = -np.log((p / p.sum(1, keepdims=True))[np.arange(len(label)), label]).mean()
    np.testing.assert_allclose(found.item(), expected, rtol=1e-5)
    assert sorted(values) == ["fc_0.b_0", "fc_0.w_0", "fc_1.b_0", "fc_1.w_0", "table"]


@on_its_day(0, of=3)
@pytest.mark.parametrize("kind", ["sync", "half", "geo"])
def test_one_script_trains_and_what_it_saves_loads_into_another_number_of_servers(kind, tmp_path):
    run(kind, tmp_path / "a")
    if kind == "sync":
        run(kind, tmp_path / "b", workers=1, servers=3, first=[tmp_path / "a"])
        check_loaded(tmp_path / "a")
    check_model(tmp_path / "a")
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert {"table", "fc_0.w_0", "fc_1.b_0"} <= {n.partition(".npy")[0] for n in names}


def test_a_role_from_the_environment(monkeypatch):
    for name, value in {"TRAINING_ROLE": "PSERVER", "PADDLE_PSERVERS_IP_PORT_LIST": "a:1,b:2", "PADDLE_TRAINERS_NUM": "3"}.items():
        monkeypatch.setenv(name, value)
    role = role_maker.PaddleCloudRoleMaker()
    with pytest.raises(ValueError, match="the environment has no POD_IP"):
        role.generate_role()
    monkeypatch.setenv("POD_IP", "b")
    monkeypatch.setenv("PADDLE_PORT", "2")
    role.generate_role()
    assert (role.is_server(), role.server_index(), role.server_num(), role.worker_num()) == (True, 1, 2, 3)
    monkeypatch.setenv("TRAINING_ROLE", "BOTH")
    with pytest.raises(ValueError, match="TRAINING_ROLE must be PSERVER or TRAINER, got 'BOTH'"):
        role_maker.PaddleCloudRoleMaker().generate_role()


def test_files_are_shared_out():
    found = []
    for i in range(3):
        fleet = FleetTranspiler()
        fleet.init(role_maker.UserDefinedRoleMaker(i, role_maker.Role.WORKER, 3, ["a:1"]))
        found.append(fleet.split_files([str(n) for n in range(7)]))
    assert found == [["0", "1", "2"], ["3", "4"], ["5", "6"]]


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        pytest.param({"server_endpoints": "a:1", "worker_num": 1}, TypeError, id="a text of servers"),
        pytest.param({"server_endpoints": ["a:1"], "worker_num": 1, "role": 3}, TypeError, id="no role"),
        pytest.param({"server_endpoints": ["a:1"], "worker_num": 2, "current_id": 2}, ValueError, id="no such worker"),
        pytest.param({"server_endpoints": ["a"], "worker_num": 1}, ValueError, id="no port"),
    ],
)
def test_roles_that_are_refused(arguments, kind):
    with pytest.raises(kind):
        role_maker.UserDefinedRoleMaker(**arguments)


def test_parts_of_a_strategy_are_set():
    strategy = StrategyFactory.create_half_async_strategy()
    strategy.set_program_config({"min_block_size": 9000, "runtime_split_send_recv": False, "sync_mode": True})
    config = strategy.get_program_config()
    assert (config.min_block_size, config.sync_mode, config.runtime_split_send_recv, config.half_async) == (9000, False, True, True)
    strategy.set_build_strategy({"fuse_all_optimizer_ops": True})
    execution = fluid.ExecutionStrategy()
    strategy.set_execute_strategy(execution)
    assert strategy.get_build_strategy().fuse_all_optimizer_ops is True
    assert strategy.get_execute_strategy() is execution
    with pytest.raises(ValueError, match="DistributeTranspilerConfig has no 'blocks'"):
        strategy.set_program_config({"blocks": 1})
    with pytest.raises(TypeError, match="takes a dict or a ServerRuntimeConfig, got int"):
        strategy.set_server_runtime_config(3)


def test_workers_are_named_where_the_environment_names_them(monkeypatch):
    told = {"TRAINING_ROLE": "TRAINER", "PADDLE_PSERVERS_IP_PORT_LIST": "a:1", "PADDLE_TRAINERS_NUM": "2", "PADDLE_TRAINER_ID": "1"}
    for name, value in {**told, "PADDLE_TRAINER_ENDPOINTS": "b:3,c:4"}.items():
        monkeypatch.setenv(name, value)
    fleet = FleetTranspiler()
    fleet.init(role_maker.PaddleCloudRoleMaker())
    assert fleet.worker_endpoints() == ["b:3", "c:4"]
    assert fleet.worker_endpoints(to_string=True) == "b:3,c:4"
    assert fleet.role.to_string() == "role: 1, current_id: 1, workers: 2, servers: a:1"


def test_roles_without_servers_say_what_to_use():
    with pytest.raises(NotImplementedError, match=r"UserDefinedCollectiveRoleMaker.*MPI"):
        role_maker.UserDefinedCollectiveRoleMaker(0, ["a:1"])
    with pytest.raises(NotImplementedError, match="PaddleCloudRoleMaker"):
        role_maker.GeneralRoleMaker()


def test_the_order_of_calls():
    fleet = FleetTranspiler()
    with pytest.raises(RuntimeError, match=r"call fleet\.init first"):
        fleet.is_worker()
    with pytest.raises(RuntimeError, match="call minimize"):
        fleet.init_worker()
    with pytest.raises(TypeError, match="takes a role maker"):
        fleet.init(3)
    with pytest.raises(ValueError, match="at least 1 step"):
        StrategyFactory.create_geo_strategy(0)
    with pytest.raises(TypeError, match="strategy must be"):
        fleet.distributed_optimizer(fluid.optimizer.SGD(0.1), np.int64(3))
