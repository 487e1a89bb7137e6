"""The manifests of `deploy/` are valid, and their commands do what they say when they run as processes with the same variables."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pe_cli.core.errors import ExitCode
from tests.mpi_support import needs_mpi
from tests.needs import package
from tests.rotation import on_its_day

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy").glob("*.yaml"))
#: Whose schemas they are held against.
VERSION = "1.29"
#: What the validator has no schema for: resources of operators.
FOREIGN = {"kubeflow.org/v2beta1"}


def parts(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((ROOT / "deploy" / f"{name}.yaml").read_text())}


def containers(manifest: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield every container with the pod's spec that it stands in."""
    if isinstance(manifest, dict):
        for each in manifest.get("containers", []):
            yield each, manifest
        for inner in manifest.values():
            yield from containers(inner)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_fits_the_published_schemas(path: Path) -> None:
    validate = package("kubernetes_validate")
    for manifest in yaml.safe_load_all(path.read_text()):
        if manifest["apiVersion"] not in FOREIGN:
            validate.validate(manifest, VERSION, strict=True)
        for _, spec in containers(manifest):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
            validate.validate(pod, VERSION, strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_container_has_its_volumes_and_limits_and_every_training_goes_on(path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        for container, spec in containers(manifest):
            assert {mount["name"] for mount in container["volumeMounts"]} <= {volume["name"] for volume in spec["volumes"]}
            if container["name"] != "launcher":
                assert container["resources"]["limits"].keys() == {"cpu", "memory"}
            command = " ".join(container["command"])
            if " train " in f" {command} ":
                assert "--resume" in command
                assert spec["terminationGracePeriodSeconds"] >= 30


def started(command: list[str], folder: Path, **variables: str) -> subprocess.Popen[str]:
    """Start a container's command in a folder that stands for its volume."""
    words = [word.replace("/job", str(folder)) for word in command]
    if words[:2] == ["sh", "-c"]:
        words[2] = words[2].replace("exec pe ", f"exec {sys.executable} -m pe_cli ")
    elif words[0] == "pe":
        words[:1] = [sys.executable, "-m", "pe_cli"]
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """What the claim holds: a config, its model and data."""
    shutil.copy(ROOT / "models" / "table_classes.yaml", tmp_path)
    shutil.copy(ROOT / "configs" / "data" / "people.csv", tmp_path)
    text = (ROOT / "configs" / "people.yaml").read_text().replace("../models/", "").replace("data/people.csv", "people.csv")
    (tmp_path / "people.yaml").write_text(re.sub(r"epochs: \d+", "epochs: 1", text))
    return tmp_path


def asked(url: str, headers: dict[str, str]) -> int:
    """Return the status of an answer, 0 where nobody listens."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except urllib.error.URLError:
        return 0


def test_the_job_trains_and_goes_on_and_its_model_is_served(work: Path) -> None:
    job, policy = next(containers(parts("job")["Job"]))[0], parts("job")["Job"]["spec"]["podFailurePolicy"]
    assert policy["rules"][1]["onExitCodes"]["values"] == [ExitCode.USAGE, ExitCode.DATA]
    for more, code in ((["--max-steps", "5"], ExitCode.STOPPED), ([], ExitCode.DONE)):
        training = started([*job["command"], *more], work)
        said = training.communicate(timeout=120)
        assert training.returncode == code, said
    (run,) = (work / "runs").iterdir()
    run.rename(work / "runs" / "people")
    server = next(containers(parts("serve")["Deployment"]))[0]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(port) if word == "8000" else word for word in server["command"]]
    process = started(command, work)
    probe = server["readinessProbe"]["httpGet"]
    headers = {each["name"]: each["value"] for each in probe["httpHeaders"]}
    try:
        until = time.monotonic() + 60
        while not (status := asked(f"http://127.0.0.1:{port}{probe['path']}", headers)):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.1)
        assert status == 200
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@on_its_day(1, of=2)
@pytest.mark.parametrize("name", ["parameter-servers", pytest.param("processes", marks=needs_mpi)])
def test_pods_of_an_indexed_job_meet_and_train_one_model(work: Path, name: str) -> None:
    job = parts(name)["Job"]
    pod = next(containers(job))[0]
    (config,) = (word for word in pod["command"] if word.endswith(".yaml"))
    config = config.removeprefix("/job/")
    if name == "parameter-servers":
        text = (work / "people.yaml").read_text() + "\ndistributed: {mode: parameter_server, servers: 1}\n"
        (work / config).write_text(text)
    variables = {each["name"]: each.get("value", "a secret of sixteen letters") for each in pod["env"]}
    assert int(variables["WORLD_SIZE"]) == job["spec"]["completions"] == job["spec"]["parallelism"]
    assert variables["MASTER_ADDR"] == f"{job['metadata']['name']}-0.{job['spec']['template']['spec']['subdomain']}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        variables |= {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    pods = [started([*pod["command"], "--max-steps", "5"], work, JOB_COMPLETION_INDEX=str(i), **variables) for i in range(2)]
    ends = [each.communicate(timeout=300) for each in pods]
    stopped = [ExitCode.STOPPED, ExitCode.DONE if name == "parameter-servers" else ExitCode.STOPPED]  # a server ends as it has served
    assert [each.returncode for each in pods] == stopped, ends
    assert len([each for each in (work / "runs").iterdir() if not each.name.startswith(".")]) == 1
