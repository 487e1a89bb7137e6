"""Values that go to files: those of a step that is due, at the ends of epochs too."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import ExitCode
from tests.session.conftest import Bench
from tests.session.training.test_phases import SEQUENCES


def test_a_fetch_by_epochs_has_the_last_step_of_each_and_of_the_run(bench: Bench) -> None:
    """Nine texts in batches of four on four devices: the last batch of an epoch has one, too few for all, and is left out."""
    (bench.base / "model.yaml").write_text(SEQUENCES)
    wishes = (
        "data={train: {reader: synthetic, samples: 9, fields: {x: {shape: [4], lengths: [1, 5]}, y: {shape: [1]}}}}",
        "fetches={hidden: {to: x.npz}, guess: {every: 3 epochs, to: y.npz}}", "train.steps=9", "train.epochs=7", "train.batch_size=4",
        "executor.devices=4", "executor.uneven_batch=drop", "train.eval_every=1 epoch", "output.checkpoint={every: 1 steps}",
    )  # fmt: skip
    options = [part for wish in wishes for part in ("-o", wish)]
    whole = bench.train("whole", *options)
    with np.load(whole / "fetches" / "x.npz") as hidden, np.load(whole / "fetches" / "y.npz") as guess:
        assert hidden["step"].tolist() == [2, 4, 6, 8, 9]
        assert guess["step"].tolist() == [6, 9]
        assert guess["guess"].shape == (8, 1), "four samples of each"
        assert hidden["hidden"].shape[1:] == (6,), "rows of all sequences, one after the other"
        assert len(hidden["hidden"]) >= 5 * 4
    part = bench.train("part", *options, "--max-steps", "3", code=ExitCode.STOPPED)
    assert bench.run("train", "--resume", part, "--quiet") == 0, bench.err
    assert bench.seen(part) == bench.seen(whole)
