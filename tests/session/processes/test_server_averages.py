"""Parameter servers that average parameters, and whose rate is lowered, against one process."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.errors import PeError
from pe_cli.session.processes.server_training import divide
from tests.rotation import of_today, on_its_day
from tests.session.conftest import Bench
from tests.session.processes.test_server_training import SERVED, TABLE_MODEL, arrays, served, tables

PLATEAU = "train.plateau={by: eval/loss, mode: min, patience: 1, factor: 0.5, threshold: 0.5}"


def test_a_plateau_lowers_the_rate_of_servers_as_that_of_one_process(bench: Bench) -> None:
    options = PLATEAU, "train.optimizer={type: SGD, learning_rate: 0.02}"
    one = bench.train("one", *(word for option in options for word in ("-o", option)))
    assert arrays(one)["learning_rate_0"][0] < 0.02
    assert bench.seen(served(bench, "served", 1, 2, *options)) == bench.seen(one)


@on_its_day(2, of=3)
def test_all_servers_lower_their_rate_before_the_next_update(bench: Bench) -> None:
    """Every second evaluation of two trainers; rows would be elsewhere if a server had done an update with the rate of before."""
    tables(bench)
    options = PLATEAU.replace("0.5}", "100}"), "train.optimizer={type: SGD, learning_rate: 0.1}", "train.epochs=6"
    one = arrays(bench.train("one", *(word for option in options for word in ("-o", option))))
    assert one["learning_rate_0"][0] == np.float32(0.1) / 4
    found = arrays(served(bench, "served", 2, 2, *options))
    for name, value in found.items():
        np.testing.assert_allclose(value, one[name], rtol=1e-4, atol=1e-6, err_msg=name)
    apart = arrays(served(bench, "geo", 2, 2, *options, more=", sync: {geo: 1}"))
    assert apart["learning_rate_0"] == one["learning_rate_0"], "each trainer lowers its own"


@pytest.mark.parametrize("trainers", of_today([1, 2], 2))
def test_servers_average_parameters_as_one_process_does(bench: Bench, trainers: int) -> None:
    """Averages of pieces of a parameter on two servers; metrics of the evaluation and the best checkpoint are those of averages."""
    options = ("train.ema={decay: 0.7}",)
    if trainers == 1:
        one = bench.train("one", "-o", *options)
        assert bench.seen(served(bench, "served", 1, 2, *options)) == bench.seen(one)
        return
    tables(bench)
    (bench.base / "model.yaml").write_text(TABLE_MODEL.replace(", is_sparse: true", ""))
    one, folder = bench.train("one", "-o", *options), served(bench, "served", trainers, 2, *options)
    expected, found = arrays(one), arrays(folder)
    assert sum("_ema_" in name for name in found) == 4
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)
    scores = [[json.loads(line) for line in (f / "metrics.jsonl").read_text().splitlines()] for f in (one, folder)]
    evaluated = [[row["loss"] for row in rows if row.get("phase") == "eval" or row.get("split") == "eval"] for rows in scores]
    assert evaluated[0], scores[0][:2]
    np.testing.assert_allclose(evaluated[1], evaluated[0], rtol=1e-4)


def test_averages_of_rows_that_only_servers_have_are_refused(bench: Bench) -> None:
    tables(bench)
    run, built = load_and_build(bench.base / "run.yaml", (SERVED.format(1, ""), "train.ema={decay: 0.7}"))
    with pytest.raises(PeError, match=r"train\.ema: table 'embedding_0\.w_0' has rows on servers alone") as found:
        divide(built, run, 0, 1, ["127.0.0.1:1"])
    assert "is_sparse: false" in (found.value.hint or "")
