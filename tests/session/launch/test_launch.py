"""What pe launch refuses, what it starts, and whom it goes on without."""

from __future__ import annotations

import contextlib
import socket

import pytest

from pe_cli.cli.launch import _apart
from pe_cli.collectives.servers.service import listen
from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.launch import launch as module
from pe_cli.session.launch.cluster_environment import ClusterEnvironment, Machine, Member
from pe_cli.session.launch.group import remote
from pe_cli.session.launch.hosts import Host
from pe_cli.session.launch.launch import Launch, described, launch
from pe_cli.session.launch.plan import Wanted, plan

SERVED = "distributed={mode: parameter_server, servers: 2}"


def wish(count, *overrides, hosts=(), **given):
    run = load_run("configs/digits.yaml", overrides)
    made = plan(run, Wanted(count, hosts=hosts), ClusterEnvironment(), Machine(cores=8))
    return Launch(run, ["configs/digits.yaml"], made, **given)


def served_tasks(launch):
    with contextlib.ExitStack() as held:
        return module._served(launch, held)


@pytest.mark.parametrize(
    ("overrides", "count", "message"),
    [
        pytest.param(("executor.processes=1",), 2, "executor.processes says 1: there is nothing to launch", id="one process, as said"),
        pytest.param(("executor.processes=3",), 2, "-n 2 and executor.processes: 3 do not go together", id="two numbers"),
        pytest.param((SERVED,), 2, "of 2 processes 2 servers leave no trainer", id="servers only"),
        pytest.param((SERVED,), 1, "of 1 process 2 servers leave no trainer", id="one process"),
    ],
)
def test_what_cannot_be_started_is_named(overrides, count, message):
    with pytest.raises(PeError, match=message) as found:
        wish(count, *overrides)
    assert found.value.code == ExitCode.USAGE
    assert found.value.hint


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param({"restarts": 2}, "--restarts starts processes again, and srun has started", id="restarts"),
        pytest.param({"mpiexec": ("mpiexec",)}, "--mpiexec, and no mpiexec starts processes here: srun", id="mpiexec"),
    ],
)
def test_options_for_processes_that_somebody_else_starts_are_refused(given, message):
    around = ClusterEnvironment(Member(1, 2, "srun", "file", job="1.0.0"), "SLURM_PROCID=1")
    run = load_run("configs/digits.yaml")
    made = plan(run, Wanted(), around, Machine(cores=8))
    with pytest.raises(PeError, match=message) as found:
        launch(Launch(run, ["configs/digits.yaml"], made, around, **given), lambda line, wrong: None)
    assert found.value.code == ExitCode.USAGE


def test_a_plan_is_described_with_its_reasons_and_without_secrets():
    lines = described(wish(3, SERVED.replace("2}", "1}")))
    assert lines[:2] == ["# 3 processes: -n 3", "# this machine: each process is started here, as servers need no MPI"]
    assert len(lines) == 5
    assert all(f"PE_RANK={i} PE_SIZE=3 PE_SERVERS=127.0.0.1:" in line for i, line in enumerate(lines[2:]))
    around = ClusterEnvironment(Member(2, 3, "an indexed Job", "address", "job-0.net:6174"), "JOB_COMPLETION_INDEX=2")
    run = load_run("configs/digits.yaml")
    pod = Launch(run, ["configs/digits.yaml"], plan(run, Wanted(), around, Machine(cores=8)), around)
    assert described(pod)[1:3] == [
        "# an indexed Job has started process 2: its tasks meet at the first one (JOB_COMPLETION_INDEX=2)",
        "# process 2 of 3 meets the others at job-0.net:6174, and runs its part:",
    ]
    assert described(pod)[3].endswith("-m pe_cli train configs/digits.yaml -o executor.processes=auto")


def test_servers_are_the_last_processes_and_all_are_told_where_they_are():
    tasks = served_tasks(wish(4, SERVED, hosts=[Host("10.0.0.1", 3), Host("10.0.0.2", 1)]))
    assert [(t.name, t.host, t.serves) for t in tasks] == [
        ("0", "10.0.0.1", False), ("1", "10.0.0.1", False), ("server 0", "10.0.0.1", True), ("server 1", "10.0.0.2", True),
    ]  # fmt: skip
    assert {t.environment["PE_SERVERS"] for t in tasks} == {"10.0.0.1:6174,10.0.0.2:6174"}
    assert [t.environment["PE_RANK"] for t in tasks] == ["0", "1", "2", "3"]
    (group,) = {t.environment["PE_GROUP"] for t in tasks}
    named = served_tasks(wish(3, "distributed={mode: parameter_server, servers: 1, endpoints: ['10.0.0.9:7000']}"))
    assert named[0].environment["PE_SERVERS"] == "10.0.0.9:7000"
    assert {t.environment["PE_GROUP"] for t in named}.isdisjoint({group}), "another start is another group"
    (secret,), (other,) = {t.secret for t in tasks}, {t.secret for t in named}
    assert len(secret) == len(other) == 64
    assert secret != other
    assert secret not in repr(tasks)
    assert not any(secret in word for t in tasks for word in (*remote(t, ["ssh"]), *t.command, *t.environment.values()))


def test_ports_of_servers_are_kept_for_them_until_they_listen():
    with contextlib.ExitStack() as held:
        tasks = module._served(wish(4, SERVED), held)
        endpoints = tasks[0].environment["PE_SERVERS"].split(",")
        for endpoint in endpoints:
            host, port = endpoint.split(":")
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((host, int(port)))
            with socket.socket() as early, pytest.raises(ConnectionRefusedError):
                early.connect((host, int(port)))
            with listen(endpoint) as server, socket.create_connection((host, int(port))):
                server.accept()[0].close()


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([0, 0], 0),
        ([75, 75, 0], 75),
        ([6, -9, 6], 6),
        ([6, 3, 6], 3),
        ([-9, None], 6),
        ([137], 6),
        ([255, 6], 6),
    ],
)
def test_the_exit_code_is_that_of_the_error(codes, code):
    assert module._code(codes) == code


@pytest.mark.parametrize(
    ("codes", "before"),
    [
        pytest.param([130, 130, None], True, id="both trainers, and a server that had to be ended"),
        pytest.param([130, -15, 6], True, id="one while Python started"),
        pytest.param([130, 143, 6], True, id="one of them by a shell, or mpiexec"),
        pytest.param([75, 130, 0], False, id="one has a checkpoint"),
        pytest.param([130, -9, 0], False, id="one was killed"),
        pytest.param([130, 6, 0], False, id="one has lost the other"),
    ],
)
def test_who_is_stopped_before_training_loses_nobody(codes, before):
    tasks = [module.Task("0", ["pe"]), module.Task("1", ["pe"]), module.Task("server 0", ["pe"], serves=True)]
    assert module._before_training(tasks, codes) is before


def test_those_that_are_left_go_on():
    served = wish(5, SERVED)
    tasks = served_tasks(served)
    lost = module._lost(served, tasks, [6, -9, 6, 0, None], [])
    assert lost == [1, 4]
    assert module._left(served, lost).count == 3
    assert module._left(served, [0, 1, 2]).count == 5, "too few would be left, so all are tried again"
    placed = wish(4, SERVED, hosts=[Host("a"), Host("b")])
    assert module._left(placed, [3]).hosts == (Host("a", 2), Host("b", 1))
    mpi = wish(3, "distributed={mode: collective}")
    said = ["error: process 2 of 3 did not answer for 5 seconds, at step 7; this is process 0"]
    assert module._lost(mpi, tasks[:1], [6], said) == [2]


@pytest.mark.parametrize(
    ("arguments", "rest", "begin"),
    [
        (["c.yaml", "-o", "a=1"], ["c.yaml", "-o", "a=1"], []),
        (["c.yaml", "--resume", "--quiet"], ["c.yaml", "--quiet"], ["--resume"]),
        (["--resume", "runs/x", "--quiet"], ["--quiet"], ["--resume", "runs/x"]),
        (["c.yaml", "--resume=runs/x", "--max-steps", "3"], ["c.yaml", "--max-steps", "3"], ["--resume=runs/x"]),
        (["c.yaml", "--init", "w.npz", "-o", "b=2"], ["c.yaml", "-o", "b=2"], ["--init", "w.npz"]),
    ],
)
def test_a_restart_leaves_out_where_the_first_start_began(arguments, rest, begin):
    assert _apart(arguments) == (rest, begin)
