"""What processes divide of a run's values: who has what, and what does not go with it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from pe_cli.collectives.servers.hub import HubPeers
from pe_cli.config.load import load_run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.session.job import Job
from pe_cli.session.owners import Divided
from pe_cli.session.team import PeerTeam
from tests.collectives.simulated import Network
from tests.session.conftest import Bench

ROWS = {"moment": ((3, 5), (0, 3)), "alone": ((0, 0), (0, 4))}


def divided(team) -> Divided:
    scope = Scope([Place("cpu", 0)])
    for name, rows in ROWS.items():
        begin, end = rows[team.rank]
        scope.allocate({name: TensorType((end - begin, 2))})
        scope.set(name, np.full((end - begin, 2), team.rank, np.float32))
    return Divided(ROWS, scope, team)


def test_rows_are_put_together_in_their_order_whoever_has_them() -> None:
    def process(peers):
        found = divided(PeerTeam(peers, peers))
        return found.whole("moment")[:, 0].tolist(), found.whole("alone").shape, found.own("moment", np.arange(10).reshape(5, 2)).tolist()

    first, second = Network(2).run(process)
    assert first[:2] == second[:2] == ([1, 1, 1, 0, 0], (4, 2))
    assert (first[2], second[2]) == ([[6, 7], [8, 9]], [[0, 1], [2, 3], [4, 5]])


def test_a_value_of_another_model_is_refused() -> None:
    def process(peers):
        with pytest.raises(PeError, match=re.escape("'moment' is [7, 2] in the file and [5, 2] in the model")) as caught:
            divided(PeerTeam(peers, peers)).own("moment", np.zeros((7, 2)))
        return caught.value.code

    assert Network(2).run(process) == [ExitCode.DATA] * 2


def test_parameters_that_are_trained_later_do_not_go_with_it(bench: Bench) -> None:
    late = ["train.groups=[{match: hidden, freeze: until 7 steps}]", "executor.processes=mpi", "build_strategy.reduce_strategy=Reduce"]
    run = load_run(bench.base / "run.yaml", late)
    said = re.escape("reduce_strategy Reduce does not go with 'hidden.w_0', which processes would train later on")

    def process(peers):
        with pytest.raises(PeError, match=said):
            Job(run, places=[Place("cpu", 0)], team=PeerTeam(peers, peers))

    Network(2).run(process)


def test_trainers_with_servers_have_no_sums_of_their_own() -> None:
    """So nothing can ask them for one: executors take what sums."""
    assert not {"reserve", "begin", "begin_scatter", "begin_gather"} & set(dir(HubPeers))
    assert PeerTeam.sums is None
