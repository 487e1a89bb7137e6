"""Trainers without servers: processes of mpiexec against as many devices of one process, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from tests.mpi_support import finished, mpiexec, needs_mpi
from tests.paddle.pserver_models import batch, built
from tests.rotation import on_its_day

SCRIPT = """
import os, sys
import numpy as np
import pe_cli.paddle.fluid as fluid
from tests.paddle.pserver_models import batch, built
how, folder = sys.argv[1:3]
rank = int(os.environ["PMI_RANK"])
os.environ["CPU_NUM"] = "1"

def started(model, optimizer):
    main, startup, loss = built(model, optimizer)
    startup.random_seed = 7 + rank  # the first trainer's values count
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    return main, loss, executor

def trained(name, main, run, steps=3):
    losses = [run(batch(name, rank, i))[0].item() for i in range(steps)]
    values = {p.name: np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in main.all_parameters()}
    np.savez(f"{folder}/{name}{rank}.npz", loss=losses, **values)

main, loss, _ = started("mlp", "Momentum+L2")
for trainers, mine in ((3, 0), (2, 5)) if how == "whole" else ():
    try:
        fluid.ParallelExecutor(False, loss.name, main, num_trainers=trainers, trainer_id=mine)
    except ValueError as error:
        print(error)
trainer = fluid.ParallelExecutor(False, loss.name, main, num_trainers=2, trainer_id=rank)
trained("mlp", main, lambda fed: trainer.run([loss], fed), 3 + (how == "longer") * rank)
if how == "breaks" and rank:
    raise SystemError("broken here")
if how == "whole":
    with fluid.scope_guard(fluid.Scope()):
        main, loss, executor = started("emb_sparse", "SGD")
        build = fluid.BuildStrategy()
        build.num_trainers, build.trainer_id = 2, rank
        program = fluid.CompiledProgram(main).with_data_parallel(loss.name, build)
        trained("emb_sparse", main, lambda fed: executor.run(program, fed, [loss]))
else:
    trained("mlp", main, lambda fed: trainer.run([loss], fed), 1)
"""


def run(tmp_path, how):
    """Run the script in two processes; return exit code and what they said."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    code, out, err = finished(mpiexec(2, script, how, tmp_path))
    return code, out + err


@on_its_day(1, of=3)
@needs_mpi
def test_two_trainers_leave_what_two_devices_leave_bit_for_bit(tmp_path, monkeypatch):
    """Dense and row-sparse gradients, batches of several lengths, and two numbers that nobody has started, which are refused first."""
    code, said = run(tmp_path, "whole")
    assert code == 0, said
    assert "num_trainers is 3, and 2 processes have been started together (hint: mpiexec -n 3 python SCRIPT" in said
    assert "trainer_id is 5, but this is process 1" in said
    monkeypatch.setenv("CPU_NUM", "2")
    for model, optimizer in (("mlp", "Momentum+L2"), ("emb_sparse", "SGD")):
        main, startup, loss = built(model, optimizer)
        scope = fluid.Scope()
        fluid.Executor(fluid.CPUPlace()).run(startup, scope=scope)
        alone = fluid.ParallelExecutor(False, loss.name, main, scope=scope)
        losses = np.array([alone.run([loss], [batch(model, 0, i), batch(model, 1, i)])[0] for i in range(3)])
        for rank in range(2):
            with np.load(tmp_path / f"{model}{rank}.npz") as found:
                np.testing.assert_array_equal(found["loss"], losses[:, rank])
                for p in main.all_parameters():
                    np.testing.assert_array_equal(found[p.name], np.array(scope.find_var(p.name).get_tensor()), err_msg=p.name)


@needs_mpi
@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param("longer", "process 0 has ended, and this one goes on", id="one has more steps"),
        pytest.param("breaks", "SystemError: broken here", id="one breaks off"),
    ],
)
def test_an_error_of_one_trainer_ends_all(how, said, tmp_path):
    code, text = run(tmp_path, how)
    assert code != 0
    assert said in text


def test_owners_of_updates_are_refused():
    main, _, loss = built("mlp", "SGD")
    build = fluid.BuildStrategy()
    build.reduce_strategy, build.num_trainers = fluid.BuildStrategy.ReduceStrategy.Reduce, 2
    with pytest.raises(ValueError, match="num_trainers above 1 needs reduce_strategy AllReduce"):
        fluid.ParallelExecutor(False, loss.name, main, build_strategy=build)
