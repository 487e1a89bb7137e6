"""Parameter servers and trainers at work: against the original's recorded trainings, replays in NumPy, and what happens to the lost."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.collectives.servers.client import Servers, wait_for_servers
from pe_cli.collectives.servers.secret import group_key
from tests.paddle.forked_processes import run_copies
from tests.paddle.pserver_job import Job, Threads, serve, side_by_side, train
from tests.paddle.pserver_models import batch, built
from tests.rotation import on_its_day

GOLDENS = Path(__file__).parent / "goldens"


@pytest.fixture
def deadline(monkeypatch):
    """Let processes be silent for two seconds."""
    monkeypatch.setenv("FLAGS_rpc_deadline", "2000")
    return 2.0


def gradients(parameters, fed):
    """Return loss and gradients of the mlp in float64."""
    acts, label = [fed["x"].astype("f8")], fed["y"][:, 0]
    for i in range(3):
        acts.append(np.maximum(acts[-1] @ parameters[f"fc_{i}.w_0"] + parameters[f"fc_{i}.b_0"], 0))
    z = acts[-1] @ parameters["fc_3.w_0"] + parameters["fc_3.b_0"]
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    loss = -np.log(p[np.arange(len(label)), label]).mean()
    d = p.copy()
    d[np.arange(len(label)), label] -= 1
    d /= len(label)
    found = {}
    for i in (3, 2, 1, 0):
        found[f"fc_{i}.w_0"], found[f"fc_{i}.b_0"] = acts[i].T @ d, d.sum(0)
        d = (d @ parameters[f"fc_{i}.w_0"].T) * (acts[i] > 0)
    return loss, found


def replay(first, steps):
    """Train the mlp with SGD on means over trainers; return trainer -> losses, and the parameters at the end."""
    parameters = {k: v.astype("f8") for k, v in first.items()}
    losses = {i: [] for i in range(len(steps))}
    for step in range(max(steps)):
        found = {i: gradients(parameters, batch("mlp", i, step)) for i, n in enumerate(steps) if step < n}
        for i, (loss, _) in found.items():
            losses[i].append(loss)
        for k in parameters:
            parameters[k] = parameters[k] - 0.1 * sum(g[k] for _, g in found.values()) / len(found)
    return losses, parameters


def check(found, steps):
    losses, last = replay(found[0][1], steps)
    for i, (theirs, first, end) in found.items():
        np.testing.assert_allclose(theirs, losses[i], rtol=2e-6)
        for name, value in first.items():
            np.testing.assert_array_equal(value, found[0][1][name])
            if steps[i] == max(steps):
                np.testing.assert_allclose(end[name], last[name], atol=2e-6)


@pytest.mark.parametrize(
    ("job", "steps"),
    [
        pytest.param(Job(), (5, 5), id="two trainers and two servers"),
        pytest.param(Job(trainers=3, smallest=8192), (3, 3, 3), id="three trainers"),
        pytest.param(Job(trainers=1, servers=1), (5,), id="one of each"),
        pytest.param(Job(trainers=1, servers=3, slices=False), (2,), id="whole parameters on three servers"),
        pytest.param(Job(config={"split_method": fluid.transpiler.HashName}), (3, 3), id="dealt by hash"),
        pytest.param(Job(), (5, 3), id="a trainer with less to do leaves, and the mean is over the others"),
        pytest.param(Job(trainers=1, sync=False), (5,), id="one asynchronous trainer"),
        pytest.param(Job(trainers=1, servers=10, slices=False), (2,), id="more servers than parameters"),
        pytest.param(Job(trainers=1, servers=10, slices=False, sync=False), (2,), id="more servers than parameters, asynchronous"),
        pytest.param(Job(trainers=1, sync=False, config={"runtime_split_send_recv": True}), (3,), id="cut when sent"),
        pytest.param(
            Job(trainers=1, sync=False, config={"runtime_split_send_recv": True, "half_async": True}), (3,), id="half-async"
        ),
        pytest.param(Job(trainers=1, sync=False, config={"enable_dc_asgd": True}), (3,), id="corrected by no delay"),
    ],
)
def test_sgd_with_servers_is_sgd_on_the_mean_gradient(job, steps):
    check(side_by_side(job, steps), steps)


def test_asynchronous_trainers_learn():
    found = side_by_side(Job(sync=False, optimizer="Adam+decay"), (12, 12))
    assert all(np.isfinite(losses).all() for losses, _, _ in found.values())
    first, last = found[0][1:]
    assert all(np.abs(last[n] - first[n]).max() > 0 for n in first)


@pytest.mark.parametrize("optimizer", ["SGD", "Momentum+L2", "SGD+globalclip", "SGD+noam"])  # Adam corrects rows as the original does
def test_rows_of_a_table_are_trained_as_the_whole_table(optimizer):
    """The same network with and without is_sparse, from the same values; Momentum decays all rows, as the original's servers do."""
    found, tables = {}, None
    for model in ("emb_dense", "emb_sparse"):
        job, threads = Job(model, optimizer, steps=4).placed(), Threads()
        scopes = [fluid.Scope() for _ in job.endpoints]
        cuts = [job.cut(0) for _ in job.endpoints], [job.cut(i) for i in range(2)]
        for i in range(2):
            threads.start(f"server {i}", serve, job, i, tables and tables[i], cut=cuts[0][i], scope=scopes[i])
            threads.start(i, train, job, i, cut=cuts[1][i])
        results = threads.join()
        found[model] = [results[i][0] for i in range(2)], {k: v for k, v in results[0][2].items() if k != "table"}
        tables = tables or [_first_of(job.cut(0), job, i) for i in range(2)]
    np.testing.assert_allclose(found["emb_sparse"][0], found["emb_dense"][0], rtol=1e-5)
    for name, value in found["emb_dense"][1].items():
        np.testing.assert_allclose(found["emb_sparse"][1][name], value, atol=1e-5)


def _first_of(cut, job, index):
    """Return what a server's startup program gives, which is the same every time."""
    scope = fluid.Scope()
    _, startup = cut[0].get_pserver_programs(job.endpoints[index])
    fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
    return {n: np.array(scope.find_var(n).get_tensor()) for n in scope.local_var_names()}


@on_its_day(1, of=3)
@pytest.mark.parametrize(("optimizer", "smallest", "slices"), [("SGD", 8192, 1), ("Momentum+L2", 64, 1)])
def test_processes_train_as_the_original_did(optimizer, smallest, slices, tmp_path):
    name = f"pserver-emb_sparse-{optimizer}-slice{slices}-{smallest}.npz"
    job = Job().placed()
    facts = [str(GOLDENS / name), ",".join(job.endpoints), "emb_sparse", optimizer, str(smallest), str(tmp_path)]
    roles = [({"FLAGS_rpc_deadline": "120000"}, [role, i, *facts]) for role in ("server", "trainer") for i in range(2)]
    codes, ends = run_copies("import sys\nfrom tests.paddle.pserver_job import main\nmain(sys.argv[1:])", roles, 120)
    assert codes == [0] * 4
    assert max(ends[:2]) - max(ends[2:]) < 5, "servers end when the last trainer has left"
    golden = np.load(GOLDENS / name)
    for i in range(2):
        found = np.load(tmp_path / f"{i}.npz")
        np.testing.assert_allclose(found["loss"], golden[f"loss/{i}"], rtol=1e-6)
        for key in (k for k in golden.files if k.startswith("final/")):
            np.testing.assert_allclose(found[key[6:]], golden[key], atol=1e-6)


def geo(job, trainer, every, cut=None, scope=None):
    """Train with GeoSgdTranspiler; return (losses, parameters at the end, parameters at first)."""
    transpiler, main, startup, loss = cut
    executor = fluid.Executor(fluid.CPUPlace())
    transpiler.get_trainer_program()
    executor.run(startup, scope=scope)
    given = {"push_vars": transpiler.vars_info, "trainers": job.trainers, "push_nums": every}
    communicator = fluid.communicator.Communicator(main, fluid.transpiler.DistributedMode.GEO, given)
    with pytest.raises(RuntimeError, match="none is running"):
        executor.run(main, batch(job.model, trainer, 0), [loss], scope=scope)
    with fluid.scope_guard(scope):
        communicator.start()
    assert communicator.is_running()
    first = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    losses = [executor.run(main, batch(job.model, trainer, i), [loss], scope=scope)[0].item() for i in range(job.steps)]
    communicator.stop()
    assert not communicator.is_running()
    last = {p.name: np.array(scope.find_var(p.name).get_tensor()) for p in main.all_parameters()}
    executor.close()
    return losses, last, first


def geo_cut(job, trainer):
    main, startup, loss = built(job.model, job.optimizer)
    config = fluid.DistributeTranspilerConfig()
    config.sync_mode, config.geo_sgd_mode = False, True
    transpiler = fluid.transpiler.GeoSgdTranspiler(config)
    config.min_block_size = job.smallest
    transpiler.transpile(trainer, main, ",".join(job.endpoints), job.trainers, False, startup)
    return transpiler, main, startup, loss


@pytest.mark.parametrize("model", ["mlp", "emb_sparse"])
def test_one_geo_trainer_trains_as_if_alone_and_servers_follow(model):
    job, threads = Job(model, trainers=1, steps=5).placed(), Threads()
    cuts, scopes = [geo_cut(job, 0) for _ in range(3)], [fluid.Scope() for _ in range(3)]
    for i in range(2):
        threads.start(f"server {i}", serve, job, i, cut=(cuts[i][0], None, None), scope=scopes[i])
    threads.start("trainer", geo, job, 0, 2, cut=cuts[2], scope=scopes[2])
    losses, last, _ = threads.join()["trainer"]
    for i, endpoint in enumerate(job.endpoints):
        for piece in cuts[2][0]._cut.at(endpoint):
            found = np.array(scopes[i].find_var(piece.name).get_tensor())
            expected = last[piece.parameter][piece.begin : piece.begin + piece.rows]
            np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("how", ["sync", "async", "geo"])
def test_what_a_parameter_has_of_its_own_is_that_of_one_process(how):
    """A rate beside the optimizer's, and a clip that leaves some alone."""
    job, threads = Job("own", "Momentum+L2", trainers=1, sync=how == "sync", steps=5).placed(), Threads()
    if how == "geo":
        cuts, scopes = [geo_cut(job, 0) for _ in range(3)], [fluid.Scope() for _ in range(3)]
        for i in range(2):
            threads.start(f"server {i}", serve, job, i, cut=(cuts[i][0], None, None), scope=scopes[i])
        threads.start("trainer", geo, job, 0, 2, cut=cuts[2], scope=scopes[2])
        theirs, end, first = threads.join()["trainer"]
    else:
        theirs, first, end = side_by_side(job)[0]
    main, startup, loss = built(job.model, job.optimizer)
    scope, executor = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    for name, value in first.items():
        scope.var(name).get_tensor().set(value)
    losses = [executor.run(main, batch(job.model, 0, i), [loss], scope=scope)[0].item() for i in range(job.steps)]
    last = {name: np.array(scope.find_var(name).get_tensor()) for name in end}
    np.testing.assert_allclose(theirs, losses, rtol=1e-6)
    assert np.abs(last["table"] - first["table"]).max() > 0.01
    for name, value in last.items():
        np.testing.assert_allclose(end[name], value, atol=1e-6, err_msg=name)


def test_geo_trainers_meet():
    job, threads = Job(trainers=2, steps=6).placed(), Threads()
    cuts, scopes = [geo_cut(job, i % 2) for i in range(4)], [fluid.Scope() for _ in range(4)]
    for i in range(2):
        threads.start(f"server {i}", serve, job, i, cut=(cuts[i][0], None, None), scope=scopes[i])
        threads.start(i, geo, job, i, 3, cut=cuts[2 + i], scope=scopes[2 + i])
    found = threads.join()
    assert all(np.isfinite(found[i][0]).all() for i in range(2))
    assert max(np.abs(found[0][1][n] - found[1][1][n]).max() for n in found[0][1]) < 0.2


# --- the lost ---------------------------------------------------------------------------------------------------------


def test_a_trainer_that_never_comes_is_named(deadline):
    job, threads = Job(servers=1).placed(), Threads()
    threads.start("server", serve, job, 0, cut=job.cut(0))
    threads.start("trainer", train, job, 0, cut=job.cut(0))
    threads.join(20, check=False)
    assert "trainer 1 has not come for" in str(threads.errors["server"])
    assert "trainer 1 has not come for" in str(threads.errors["trainer"])
    assert isinstance(threads.errors["trainer"], RuntimeError)


def test_a_trainer_that_breaks_off_ends_all(deadline):
    job, threads = Job(servers=1).placed(), Threads()
    threads.start("server", serve, job, 0, cut=job.cut(0))
    threads.start("trainer", train, job, 0, cut=job.cut(0))
    other = Servers(job.endpoints, 1, deadline, 0, key=group_key(job.endpoints))
    time.sleep(0.5)
    other._drop()
    threads.join(20, check=False)
    assert "trainer 1 is lost: it closed the connection without leaving" in str(threads.errors["server"])
    assert "trainer 1 is lost" in str(threads.errors["trainer"])


def test_a_server_that_is_not_there_is_named(deadline):
    job = Job(servers=1).placed()
    with pytest.raises(RuntimeError, match=rf"server {job.endpoints[0]} does not listen after 2 s"):
        train(job, 0)


def test_a_server_that_is_killed_is_named(tmp_path):
    job = Job("emb_sparse", "SGD", trainers=1, servers=1).placed()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    script = (
        "from tests.paddle.pserver_job import Job, serve\n"
        f"serve(Job('emb_sparse', 'SGD', trainers=1, servers=1, endpoints={job.endpoints!r}), 0)"
    )
    server = subprocess.Popen([sys.executable, "-c", script], env=environment)
    threads = Threads()
    threads.start("trainer", train, job, 0, cut=job.cut(0), steps=100000)
    wait_for_servers(job.endpoints, 60)
    time.sleep(1)
    server.kill()
    server.wait(5)
    threads.join(20, check=False)
    assert f"server {job.endpoints[0]} is lost" in str(threads.errors["trainer"])


def test_a_port_in_use_is_named():
    job = Job(servers=1).placed()
    host, port = job.endpoints[0].split(":")
    with socket.create_server((host, int(port))), pytest.raises(RuntimeError, match=f"server {host}:{port} cannot listen"):
        serve(job, 0)


def test_two_trainers_of_one_number_are_refused():
    job, threads = Job(servers=1, trainers=1).placed(), Threads()
    threads.start("server", serve, job, 0, cut=job.cut(0))
    first = Servers(job.endpoints, 0, 10.0, 1 << 20, key=group_key(job.endpoints))
    for number, message in ((0, "there is a trainer 0 already"), (1, "there are 1 trainers, and none has number 1")):
        with pytest.raises(Exception, match=message):
            Servers(job.endpoints, number, 10.0, 1 << 20, key=group_key(job.endpoints))
    first.leave()
    threads.join(10)


def test_an_id_that_is_not_in_the_table():
    job, threads = Job("emb_sparse", trainers=1, servers=1).placed(), Threads()
    threads.start("server", serve, job, 0, cut=job.cut(0))
    transpiler, startup, loss = job.cut(0)
    scope, executor = fluid.Scope(), fluid.Executor(fluid.CPUPlace())
    main = transpiler.get_trainer_program()
    executor.run(startup, scope=scope)
    words = fluid.create_lod_tensor(np.array([[3], [1000]]), [[2]], fluid.CPUPlace())
    with pytest.raises(RuntimeError, match=r"id 1000 is not in \[0, 1000\) of 'table'"):
        executor.run(main, {"w": words, "y": np.zeros((1, 1), "int64")}, [loss], scope=scope)
    executor.close()
    threads.join(10)


def test_servers_that_other_machines_reach_need_a_secret(monkeypatch):
    """A script has no config: the secret is the variable's, for all of its processes."""
    monkeypatch.delenv("PE_GROUP_SECRET", raising=False)
    job = Job(trainers=1, servers=1, steps=2).placed()
    job = replace(job, endpoints=(job.endpoints[0].replace("127.0.0.1", "0.0.0.0"),))
    for role in (lambda: serve(job, 0), lambda: train(job, 0)):
        with pytest.raises(RuntimeError, match=r"0\.0\.0\.0:\d+ can be reached from other machines, and its group has no secret"):
            role()
    monkeypatch.setenv("PE_GROUP_SECRET", "only these processes know this text")
    assert group_key(job.endpoints) == group_key(["127.0.0.1:1"])
    side_by_side(Job(trainers=1, servers=1, steps=1))
