"""train.phases over several processes: what one process with as many devices leaves, bit for bit."""

from __future__ import annotations

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.core.errors import ExitCode
from pe_cli.io import checkpoint
from pe_cli.ops.define.registry import discover
from pe_cli.session.job import Job
from pe_cli.session.processes.peer_group import PeerGroup
from pe_cli.session.training.loop import Trainer
from tests.collectives.simulated import Network, Simulated
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.rotation import on_its_day
from tests.session.conftest import Bench
from tests.session.training.test_phases import SEQUENCES, of_points, phased

#: Gradients of parts, moving averages, values to files, and a batch at the end that does not divide.
WISHES = (
    "train.accumulate=2",
    "train.ema.decay=0.9",
    "output.gradient_norms=true",
    "data.train.shuffle=true",
    "fetches={of_real: {every: 1 steps, to: real.npz}, of_fake: {every: 1 steps, to: fake.npz}, d_loss: {every: 1 steps}}",
)


@on_its_day(0, of=3)
@needs_mpi
def test_two_processes_leave_what_two_devices_leave_and_go_on_bit_for_bit(bench: Bench) -> None:
    options = [part for wish in WISHES for part in ("-o", wish)]
    config = of_points(bench).base / "run.yaml"
    where = bench.base / "several"
    for more, code in ((("--max-steps", "3"), ExitCode.STOPPED), (("--resume",), 0)):
        line = ["-m", "pe_cli", "train", config, "--quiet", *options, "-o", f"output.dir={where}", *more]
        found, _, err = finished(mpiexec(2, *line, "-o", "executor.processes=auto"))
        assert found == code, err
    (folder,) = where.iterdir()
    one = bench.train("one", "-o", "executor.devices=2", *options)
    assert bench.seen(folder) == bench.seen(one)
    assert checkpoint.load(folder)[1]["step"] == 6


@pytest.mark.parametrize("processes", [2, 3])
def test_sequences_are_shared_out_and_a_process_may_have_none(bench: Bench, processes: int) -> None:
    """Seven sequences in steps of two batches of three: the last step has one, and nothing for the second process."""
    (bench.base / "model.yaml").write_text(SEQUENCES)
    data = "{train: {reader: synthetic, samples: 7, shuffle: true, fields: {x: {shape: [4], lengths: [1, 5]}, y: {shape: [1]}}}}"
    wishes = (f"data={data}", "train.batch_size=3", "train.epochs=2", "train.eval_every=1 epoch", "fetches={loss: {every: 1 steps}}")
    options = [*wishes, "output.checkpoint={every: 1 epoch}"]
    config = bench.base / "run.yaml"
    config.write_text(phased(config.read_text(), repeat=2))
    discover()  # not by several threads at once
    made = [load_and_build(config, [*options, f"output.dir={bench.base / 'several'}"]) for _ in range(processes)]

    def process(peers: Simulated) -> None:
        run, built = made[peers.rank]
        job = Job(run, built=built, group=PeerGroup(peers, peers))
        job.initialise()
        Trainer(job).train()

    Network(processes).run(process)
    (several,) = (bench.base / "several").iterdir()
    one = bench.train("one", *(part for wish in (*options, f"executor.devices={processes}") for part in ("-o", wish)))
    assert bench.seen(several) == bench.seen(one)
