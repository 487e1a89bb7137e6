"""paddle.distributed: what launchers tell each process, and how they end."""

from __future__ import annotations

import pytest

import pe_cli.paddle as paddle
from pe_cli.core.errors import PeError
from pe_cli.paddle.distributed import launch, launch_ps
from pe_cli.paddle.fluid.incubate.fleet.base.role_maker import PaddleCloudRoleMaker


def test_a_process_for_each_device_of_each_machine():
    given = launch.parsed(
        ["--cluster_node_ips", "10.0.0.1,10.0.0.2", "--node_ip", "10.0.0.2", "--selected_gpus", "0,3", "script.py", "--epochs", "3"]
    )
    assert (given.training_script, given.training_script_args) == ("script.py", ["--epochs", "3"])
    roles = launch.roles(given)
    everyone = "10.0.0.1:6170,10.0.0.1:6171,10.0.0.2:6170,10.0.0.2:6171"
    assert [name for name, _, _ in roles] == ["workerlog.0", "workerlog.1"]
    assert roles[1][1] == {
        "FLAGS_selected_gpus": "3",
        "PADDLE_TRAINER_ID": "3",
        "PADDLE_CURRENT_ENDPOINT": "10.0.0.2:6171",
        "PADDLE_TRAINERS_NUM": "4",
        "PADDLE_TRAINER_ENDPOINTS": everyone,
    }


def test_trainers_and_servers_are_told_their_roles(monkeypatch):
    roles = launch_ps.roles(launch_ps.parsed(["--worker_num", "3", "--server_num", "2", "--start_port", "7000", "script.py"]))
    assert [name for name, _, _ in roles] == ["workerlog.0", "workerlog.1", "workerlog.2", "serverlog.0", "serverlog.1"]
    found = []
    for _, environment, serves in roles:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        maker = PaddleCloudRoleMaker()
        maker.generate_role()
        assert maker.is_server() == serves
        found.append(maker.server_index() if serves else maker.worker_index())
        assert (maker.worker_num(), maker.get_pserver_endpoints()) == (3, ["127.0.0.1:7000", "127.0.0.1:7001"])
    assert found == [0, 1, 2, 0, 1]


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (launch, ["--node_ip", "10.0.0.9", "script.py"], "--node_ip 10.0.0.9 is not in --cluster_node_ips"),
        (launch, ["--selected_gpus", "0,x", "script.py"], "must be numbers with commas"),
        (launch, ["--cluster_node_ips", "a,a", "script.py"], "names a host twice"),
        (launch_ps, ["--server_num", "0", "script.py"], "must be at least 1"),
        (launch_ps, ["--endpoints", "nohost", "script.py"], "'nohost' is no server"),
        (launch_ps, ["no-such-script.py"], "no such script"),
    ],
)
def test_what_does_not_fit_is_named(module, arguments, message):
    with pytest.raises(PeError, match=message):
        module.launch(arguments)


def test_each_process_has_a_log_and_the_first_wrong_exit_code_counts(tmp_path, capfd):
    script = tmp_path / "script.py"
    lines = "import os, paddle, sys", "me = os.environ['PADDLE_TRAINER_ID']", "print('I am', me, paddle.__name__)", "sys.exit(3 * int(me))"
    script.write_text("\n".join(lines))
    logs = tmp_path / "logs"
    assert launch.launch(["--selected_gpus", "0,1", "--log_dir", str(logs), str(script)]) == 3
    assert [(logs / f"workerlog.{i}.log").read_text() for i in range(2)] == [f"I am {i} pe_cli.paddle\n" for i in range(2)]
    out, err = capfd.readouterr()
    assert out == "I am 0 pe_cli.paddle\n"
    assert "error: workerlog.1 ended with exit code 3" in err
    assert "PADDLE_TRAINERS_NUM=2" in err


def test_other_names_say_that_they_are_not_there():
    with pytest.raises(NotImplementedError, match="processes are started by MPI"):
        paddle.distributed.init_parallel_env()
