"""A thread sends gradients while the trainer goes on: what becomes of them, and what its limits are."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.execute.servers.gradient_queue import merged_of
from pe_cli.graph.servers.server_program import ROWS
from pe_cli.paddle.fluid.incubate.fleet.parameter_server.distribute_transpiler.distributed_strategy import AsyncStrategy
from tests.paddle.pserver_job import Job, Threads, serve
from tests.paddle.pserver_models import batch
from tests.paddle.test_parameter_server import replay

Mode = fluid.transpiler.DistributedMode
ASYNC = {"runtime_split_send_recv": True}


def train(job, envs, cut=None, scope=None, waits=False):
    """Train beside a Communicator; return losses, and the parameters at first."""
    transpiler, startup, loss = cut
    executor = fluid.Executor(fluid.CPUPlace())
    main = transpiler.get_trainer_program()
    executor.run(startup, scope=scope)
    communicator = fluid.communicator.Communicator(main, Mode.ASYNC, envs=envs)
    communicator.start()
    names = [p.name for p in main.all_parameters() if p.name != "table"]
    first, losses = {n: np.array(scope.find_var(n).get_tensor()) for n in names}, []
    for i in range(job.steps):
        losses.append(executor.run(main, batch(job.model, 0, i), [loss], scope=scope)[0].item())
        if waits:
            communicator.outbox.flush()
    communicator.stop()
    assert not communicator.is_running()
    executor.close()
    return losses, first


def trained(job, envs, **given):
    """Train with two servers; return losses, and the trainer's parameters at first."""
    threads = Threads()
    cuts, scopes = [job.cut(0) for _ in range(3)], [fluid.Scope() for _ in range(3)]
    for i in range(2):
        threads.start(f"server {i}", serve, job, i, cut=cuts[i], scope=scopes[i])
    threads.start("trainer", train, job, envs, cut=cuts[2], scope=scopes[2], **given)
    return threads.join()["trainer"]


def test_a_trainer_that_waits_for_what_it_has_sent_does_the_steps_of_sgd():
    losses, first = trained(Job(trainers=1, sync=False, steps=4, config=ASYNC).placed(), {}, waits=True)
    np.testing.assert_allclose(losses, replay(first, (4,))[0][0], rtol=2e-6)


def test_rows_and_gradients_go_over_one_connection():
    envs = {"communicator_min_send_grad_num_before_recv": 2, "communicator_send_queue_size": 1}
    losses, _ = trained(Job("emb_sparse", trainers=1, sync=False, steps=12, config=ASYNC).placed(), envs)
    assert np.isfinite(losses).all()


def test_gradients_of_several_steps_become_their_mean():
    one, other = {"w": np.array([1.0, 2.0]), "b": np.array([4.0])}, {"w": np.array([3.0, 6.0])}
    found = merged_of([one, other])
    np.testing.assert_array_equal(found["w"], [2.0, 4.0])
    np.testing.assert_array_equal(found["b"], [4.0])
    first = {"t": np.array([[1.0], [2.0]]), "t" + ROWS: np.array([7, 3])}
    second = {"t": np.array([[10.0]]), "t" + ROWS: np.array([3])}
    found = merged_of([first, second])
    np.testing.assert_array_equal(found["t" + ROWS], [3, 7])
    np.testing.assert_array_equal(found["t"], [[6.0], [0.5]])


@pytest.mark.parametrize(
    ("envs", "message"),
    [
        ({"communicator_max_merge_var_num": 0}, "communicator_max_merge_var_num must be a positive whole number"),
        ({"communicator_send_queue_size": "many"}, "communicator_send_queue_size must be a positive whole number"),
        ({"communicator_max_merge_var_nun": 3}, "envs has no 'communicator_max_merge_var_nun'"),
    ],
)
def test_limits_that_are_none_are_named(envs, message):
    with pytest.raises(ValueError, match=message):
        fluid.communicator.Communicator(fluid.Program(), Mode.ASYNC, envs=envs)


def test_a_program_without_servers_is_refused():
    with pytest.raises(RuntimeError, match="the program has no servers"):
        fluid.communicator.Communicator(fluid.Program(), Mode.ASYNC).start()


def test_a_strategy_has_the_limits(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "3")
    monkeypatch.setenv("FLAGS_communicator_send_queue_size", "9")
    strategy = AsyncStrategy()
    strategy.set_trainer_runtime_config({"communicator_max_merge_var_num": 5, "communicator_thread_pool_size": 8})
    assert strategy.get_trainer_runtime_config().get_communicator_flags() == {
        "communicator_max_merge_var_num": "5",
        "communicator_send_queue_size": "9",
        "communicator_min_send_grad_num_before_recv": "3",
    }
    with pytest.raises(ValueError, match="no 'communicator_queue'"):
        strategy.set_trainer_runtime_config({"communicator_queue": 5})
    with pytest.raises(TypeError):
        strategy.set_trainer_runtime_config(7)
