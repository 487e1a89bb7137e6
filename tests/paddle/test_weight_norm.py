"""fluid.WeightNormParamAttr: the reference's sample, and the same training on one and two devices."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.fluid import WeightNormParamAttr


def test_the_reference_sample():
    data = fluid.layers.data(name="data", shape=[3, 32, 32], dtype="float32")
    fc = fluid.layers.fc(input=data, size=1000, param_attr=WeightNormParamAttr(dim=None, name="weight_norm_param"))
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    (out,) = executor.run(feed={"data": np.ones((2, 3, 32, 32), "float32")}, fetch_list=[fc])
    assert out.shape == (2, 1000)
    length, direction = (
        np.array(fluid.global_scope().find_var(f"weight_norm_param_{part}").get_tensor()) for part in "gv"
    )
    assert length.ravel() == pytest.approx(np.linalg.norm(direction.astype("float64")), rel=1e-6)
    assert paddle.static.WeightNormParamAttr is WeightNormParamAttr


def test_two_devices_train_as_one(monkeypatch):
    monkeypatch.setenv("CPU_NUM", "2")
    batch = np.random.default_rng(0).standard_normal((7, 5)).astype("float32")
    found = []
    for parallel in (False, True):
        programs = fluid.Program(), fluid.Program()
        with fluid.program_guard(*programs), fluid.scope_guard(fluid.Scope()), fluid.unique_name.guard():
            programs[1].random_seed = 3
            x = fluid.data("x", [-1, 5])
            w = fluid.WeightNormParamAttr(0, "w", regularizer=fluid.regularizer.L2Decay(0.1))
            loss = fluid.layers.mean(fluid.layers.square(fluid.layers.fc(x, 3, param_attr=w)))
            fluid.optimizer.Adam(0.1).minimize(loss)
            executor = fluid.Executor(fluid.CPUPlace())
            executor.run(programs[1])
            main = (
                fluid.CompiledProgram(programs[0]).with_data_parallel(loss_name=loss.name) if parallel else programs[0]
            )
            losses = [float(executor.run(main, {"x": batch}, [loss])[0].mean()) for _ in range(3)]
            values = [np.array(fluid.global_scope().find_var(f"w_{part}").get_tensor()) for part in "gv"]
            found.append((losses, values))
    assert found[0][0][2] < found[0][0][0]
    for one, two in zip(found[0][1], found[1][1], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
