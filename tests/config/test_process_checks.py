"""What a run file may ask for together with `executor.processes: auto`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pe_cli.config.load import load_run
from pe_cli.config.resolved import resolved_yaml

Errors = Callable[..., list[str]]
RUN = "model: model.yaml\nexecutor: {processes: mpi}\n"


def test_one_process_is_the_default_and_mpi_the_other_choice(folder: Callable[..., None]) -> None:
    folder(run="model: model.yaml\n")
    alone = load_run("run.yaml").executor
    assert (alone.processes, alone.peer_timeout) == (1, 60.0)
    several = load_run("run.yaml", ("executor.processes=auto", "executor.peer_timeout=5")).executor
    assert (several.processes, several.peer_timeout) == ("auto", 5.0)
    assert load_run("run.yaml", ("executor.processes=1",)).executor.processes == 1
    assert load_run("run.yaml", ("executor.processes=3",)).executor.processes == 3
    assert load_run("run.yaml", ("executor.processes=mpi",)).executor.processes == "auto", "as release candidates called it"


@pytest.mark.parametrize("value", ["0", "4097", "true", "1.0", "MPI", "null"])
def test_processes_are_a_number_or_what_fits(run_errors: Errors, value: str) -> None:
    (text,) = run_errors(f"model: model.yaml\nexecutor: {{processes: {value}}}\n")
    assert text.startswith("run.yaml:2:23: error: executor.processes must be auto or a number of processes, 1 to 4096, got ")


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_the_timeout_is_a_time(run_errors: Errors, value: str) -> None:
    (text,) = run_errors(f"model: model.yaml\nexecutor: {{peer_timeout: {value}}}\n")
    assert "run.yaml:2:26: error: executor.peer_timeout must be " in text


def test_processes_with_cards_may_do_what_others_do_but_for_servers(folder: Callable[..., None], run_errors: Errors) -> None:
    executor = "executor: {processes: mpi, place: cuda, libraries: none}\n"
    folder(run=f"model: model.yaml\n{executor}build_strategy: {{reduce_strategy: Reduce, fp16_allreduce: true}}\n")
    assert load_run("run.yaml").executor.libraries == "none"
    servers = "distributed: {mode: parameter_server, servers: 1}\n"
    (found_there,) = run_errors(f"model: model.yaml\nexecutor: {{place: cuda}}\n{servers}")
    assert found_there.startswith("run.yaml:2:19: error: place: cuda: not with parameter servers")


def test_asynchronous_training_of_several_processes_is_that_of_servers(run_errors: Errors) -> None:
    async_here = "executor: {processes: mpi, type: async}\n"
    found = "\n".join(run_errors(f"model: model.yaml\n{async_here}"))
    assert "run.yaml:2:34: error: type: async: processes have no memory in common" in found
    assert "set distributed: {mode: parameter_server, servers: 1, sync: async}" in found
    servers = "distributed: {mode: parameter_server, servers: 1, sync: SYNC}\nexecutor: {type: async}\n"
    found = "\n".join(run_errors(f"model: model.yaml\n{servers}".replace("SYNC", "true")))
    assert "run.yaml:2:57: error: distributed.sync: true: servers wait for one gradient of every trainer" in found
    assert "sync: async, half_async, or {geo: 100}; or executor.type: parallel" in found


@pytest.mark.parametrize("sync", ["async", "half_async", "{geo: 100}"])
def test_threads_of_processes_that_wait_for_nobody_are_right(folder: Callable[..., None], sync: str) -> None:
    folder(run=f"model: model.yaml\ndistributed: {{mode: parameter_server, servers: 1, sync: {sync}}}\nexecutor: {{type: async}}\n")
    assert load_run("run.yaml").executor.type == "async"


def test_owners_of_rows_may_have_what_owners_of_parameters_may_not(folder: Callable[..., None]) -> None:
    folder(run="model: model.yaml\nexecutor: {processes: mpi}\n")
    found = load_run("run.yaml", ("build_strategy={reduce_strategy: Reduce, fuse_all_optimizer_ops: true, fuse_all_reduce_ops: true}",))
    assert found.build_strategy.reduce_strategy == "Reduce"


def test_owners_are_for_processes_that_sum_among_themselves(run_errors: Errors) -> None:
    served = "distributed: {mode: parameter_server, servers: 1}\nbuild_strategy: {reduce_strategy: Reduce, gradient_scale_strategy: One}\n"
    found = "\n".join(run_errors(f"model: model.yaml\n{served}"))
    assert "run.yaml:3:68: error: gradient_scale_strategy: One: not with parameter servers" in found
    assert "run.yaml:3:35: error: reduce_strategy: Reduce: not with parameter servers" in found


SERVED = "model: model.yaml\ndistributed: {mode: parameter_server, servers: 2}\n"


def test_the_section_distributed_asks_for_processes(folder: Callable[..., None]) -> None:
    folder(run=SERVED)
    run = load_run("run.yaml", ("distributed.sync={geo: 100}",))
    assert run.has_servers
    assert run.executor.processes == "auto"
    assert run.distributed is not None
    assert (run.distributed.servers, run.distributed.sync, run.distributed.min_block_size) == (2, 100, 8192)
    collective = load_run("run.yaml", ("distributed={mode: collective}",))
    assert (collective.has_servers, collective.executor.processes) == (False, "auto")
    assert load_run("run.yaml", ("distributed=null",)).executor.processes == 1
    again = resolved_yaml(run)
    assert "geo: 100" in again
    assert "processes" not in again


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{mode: parameter_server}", "distributed.mode: parameter_server needs servers, and there are none"),
        ('{mode: parameter_server, endpoints: ["h:1"]}', "distributed.endpoints has 1, and distributed.servers is absent"),
        ("{mode: collective, servers: 2}", "distributed.servers is for mode: parameter_server"),
        ("{servers: 2, sync: async}", "distributed.servers is for mode: parameter_server"),
        ("{mode: parameter_server, servers: 0}", "distributed.servers must be at least 1"),
        ("{mode: parameter_server, servers: 1, sync: false}", "distributed.sync must be true, async, half_async, or {geo: N}"),
        ("{mode: parameter_server, servers: 1, sync: {geo: 0}}", "distributed.sync must be true, async, half_async, or {geo: N}"),
        ("{mode: parameter_server, servers: 2, endpoints: ['h:1']}", "distributed.endpoints has 1 servers, and servers says 2"),
        ("{mode: parameter_server, servers: 2, endpoints: ['h:1', 'h:1']}", "distributed.endpoints names a server twice"),
        ("{mode: parameter_server, servers: 1, endpoints: [h]}", "must be host:port"),
        ("{mode: parameter_server, servers: 1, split_method: hash}", "distributed.split_method must be"),
        ("{mode: collective, secret: s}", "distributed.secret is for mode: parameter_server"),
        ("{mode: parameter_server, servers: 1, secret: ''}", "distributed.secret"),
        ('{mode: parameter_server, servers: 1, secret: "a\\0b"}', "must not hold a NUL character"),
    ],
)
def test_what_servers_cannot_be_is_told_with_its_place(run_errors: Errors, section: str, message: str) -> None:
    found = run_errors(f"model: model.yaml\ndistributed: {section}\n")
    assert found[0].startswith("run.yaml:2:")
    assert message in found[0]


def test_the_file_of_a_secret_is_told_from_the_folder_of_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the config is extended, and for the folder of the run."""
    for name, text in {
        "configs/base.yaml": f"{SERVED.replace('servers: 2', 'servers: 2, secret: secret')}",
        "model.yaml": "name: m\nfeeds: {x: {shape: [1]}}\nlayers: {loss: {type: mean, x: x}}\n",
        "run.yaml": "extends: configs/base.yaml\nmodel: model.yaml\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    run = load_run("run.yaml")
    assert run.distributed is not None
    assert run.distributed.secret == "configs/secret"
    assert f"secret: {tmp_path}/configs/secret" in resolved_yaml(run, standalone=True)
    assert "secret: configs/secret" in resolved_yaml(run)
    at_home = load_run("run.yaml", ("distributed.secret=~/secret",))
    assert "secret: /home/somebody/secret" in resolved_yaml(at_home, standalone=True)


def test_what_trainers_with_servers_cannot_do_is_told_with_its_place(run_errors: Errors) -> None:
    more = (
        "executor: {processes: 1, devices: 2}\noutput: {gradient_norms: true}\nexec_strategy: {num_iteration_per_run: 2}\n"
        "train: {loss: loss, epochs: 1, batch_size: 8, accumulate: 2, "
        "optimizer: {type: SGD, learning_rate: 0.1}}\n"
    )
    text = "\n".join(run_errors(SERVED + more))
    for part in ("executor.processes says 1", "executor.devices: 2", "output.gradient_norms", "num_iteration_per_run: 2"):
        assert part in text
    assert "train.accumulate: not with parameter servers" in text


def test_servers_average_where_they_wait_for_all_trainers(run_errors: Errors, folder: Callable[..., None]) -> None:
    more = "train: {loss: loss, epochs: 1, batch_size: 8, ema: {decay: 0.9}, optimizer: {type: SGD, learning_rate: 0.1}}\n"
    (text,) = run_errors(SERVED.replace("servers: 2", "servers: 2, sync: async") + more)
    assert "run.yaml:3:" in text
    assert "train.ema: with parameter servers only where they wait for all trainers" in text
    folder(run=SERVED + more)
    assert load_run("run.yaml").train is not None
