"""What a run file may ask for together with `executor.processes: mpi`."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest

from pe_cli.config.load import load_run

Errors = Callable[..., list[str]]
RUN = "model: model.yaml\nexecutor: {processes: mpi}\n"


def test_one_process_is_the_default_and_mpi_the_other_choice(folder: Callable[..., None]) -> None:
    folder(run="model: model.yaml\n")
    alone = load_run("run.yaml").executor
    assert (alone.processes, alone.peer_timeout) == (1, 60.0)
    several = load_run("run.yaml", ("executor.processes=mpi", "executor.peer_timeout=5")).executor
    assert (several.processes, several.peer_timeout) == ("mpi", 5.0)
    assert load_run("run.yaml", ("executor.processes=1",)).executor.processes == 1


@pytest.mark.parametrize("value", ["2", "true", "1.0", "MPI", "null"])
def test_a_number_of_processes_is_for_mpiexec(run_errors: Errors, value: str) -> None:
    (text,) = run_errors(f"model: model.yaml\nexecutor: {{processes: {value}}}\n")
    assert text.startswith("run.yaml:2:23: error: executor.processes must be 1 or mpi (mpiexec -n says how many), got ")


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_the_timeout_is_a_time(run_errors: Errors, value: str) -> None:
    (text,) = run_errors(f"model: model.yaml\nexecutor: {{peer_timeout: {value}}}\n")
    assert "run.yaml:2:26: error: executor.peer_timeout must be " in text


def test_what_cannot_be_done_yet_is_told_with_its_place(run_errors: Errors) -> None:
    found = run_errors(
        "model: model.yaml\nexecutor: {processes: mpi, place: cuda}\n"
        "build_strategy: {reduce_strategy: Reduce}\n"
    )
    assert [text.splitlines()[0] for text in found] == [
        "run.yaml:2:35: error: place: cuda: not with several processes yet",
        "run.yaml:3:35: error: reduce_strategy: Reduce: not with several processes yet",
    ]
    text = """\
        run.yaml:2:35: error: place: cuda: not with several processes yet
              executor: {processes: mpi, place: cuda}
                                                ^^^^
        hint: place: cpu, or processes: 1"""
    assert found[0] == dedent(text)


def test_asynchronous_training_is_one_process(run_errors: Errors) -> None:
    found = run_errors("model: model.yaml\nexecutor: {processes: mpi, type: async}\n")
    assert any("error: type: async: not with several processes yet" in text for text in found)
