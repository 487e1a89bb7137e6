"""Trainers without servers: processes of mpiexec against as many devices of one process, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.paddle.pserver_models import batch, built

SCRIPT = """
import os, sys
import numpy as np
import pe_cli.paddle.fluid as fluid
from tests.paddle.pserver_models import batch, built
model, optimizer, folder, steps = sys.argv[1:5]
rank = int(os.environ["PMI_RANK"])
os.environ["CPU_NUM"] = "1"
main, startup, loss = built(model, optimizer)
startup.random_seed = 7 + rank  # the first trainer's values count
executor = fluid.Executor(fluid.CPUPlace())
executor.run(startup)
if "compiled" in sys.argv:
    build = fluid.BuildStrategy()
    build.num_trainers, build.trainer_id = 2, rank
    program = fluid.CompiledProgram(main).with_data_parallel(loss.name, build)
    run = lambda fed: executor.run(program, fed, [loss])
else:
    trainer = fluid.ParallelExecutor(False, loss.name, main, num_trainers=2, trainer_id=rank)
    run = lambda fed: trainer.run([loss], fed)
losses = [run(batch(model, rank, i))[0].item() for i in range(int(steps) + (rank if "longer" in sys.argv else 0))]
if "breaks" in sys.argv and rank:
    raise SystemError("broken here")
values = {p.name: np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in main.all_parameters()}
np.savez(f"{folder}/{rank}.npz", loss=losses, **values)
"""


def run(tmp_path, *arguments):
    """Run the script in two processes; return exit code and what they said."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code, out, err = finished(mpiexec(2, script, *arguments))
    return code, out + err


@needs_mpi
@pytest.mark.parametrize(("model", "optimizer", "more"), [("mlp", "Momentum+L2", []), ("emb_sparse", "SGD", ["compiled"])])
def test_two_trainers_leave_what_two_devices_leave_bit_for_bit(model, optimizer, more, tmp_path, monkeypatch):
    assert run(tmp_path, model, optimizer, tmp_path, 3, *more) == (0, "")
    monkeypatch.setenv("CPU_NUM", "2")
    main, startup, loss = built(model, optimizer)
    scope = fluid.Scope()
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    alone = fluid.ParallelExecutor(False, loss.name, main, scope=scope)
    losses = np.array([alone.run([loss], [batch(model, 0, i), batch(model, 1, i)])[0] for i in range(3)])
    for rank in range(2):
        with np.load(tmp_path / f"{rank}.npz") as found:
            np.testing.assert_array_equal(found["loss"], losses[:, rank])
            for p in main.all_parameters():
                np.testing.assert_array_equal(found[p.name], np.array(scope.find_var(p.name).get_tensor()), err_msg=p.name)


@needs_mpi
@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param("longer", "process 0 has ended, and this one goes on", id="one takes a step more"),
        pytest.param("breaks", "SystemError: broken here", id="one breaks off"),
    ],
)
def test_an_error_of_one_trainer_ends_all(how, said, tmp_path):
    code, text = run(tmp_path, "mlp", "SGD", tmp_path, 2, how)
    assert code != 0
    assert said in text


@needs_mpi
def test_trainers_that_nobody_has_started_are_refused(tmp_path):
    script = (
        "import pe_cli.paddle.fluid as fluid\nfrom tests.paddle.pserver_models import built\nmain, _, loss = built('mlp', 'SGD')\n"
        "for trainers, mine in ((3, 0), (2, 5)):\n  try:\n"
        "    fluid.ParallelExecutor(False, loss.name, main, num_trainers=trainers, trainer_id=mine)\n"
        "  except ValueError as error: print(error)\n"
    )
    (tmp_path / "script.py").write_text(script)
    code, out, _ = finished(mpiexec(2, tmp_path / "script.py"))
    assert code == 0
    assert "num_trainers is 3, and 2 processes have been started together (hint: mpiexec -n 3 python SCRIPT" in out
    assert "trainer_id is 5, but this is process 1" in out


def test_owners_of_updates_are_refused():
    main, _, loss = built("mlp", "SGD")
    build = fluid.BuildStrategy()
    build.reduce_strategy, build.num_trainers = fluid.BuildStrategy.ReduceStrategy.Reduce, 2
    with pytest.raises(ValueError, match="num_trainers above 1 needs reduce_strategy AllReduce"):
        fluid.ParallelExecutor(False, loss.name, main, build_strategy=build)
