"""What scripts of the original ask programs, operators and files for."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.paddle.errors import FluidTypeError, FluidValueError


def run(*fetched, **feed):
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return [np.asarray(v).tolist() for v in exe.run(feed=feed, fetch_list=list(fetched))]


def test_a_clone_for_tests_has_no_ops_of_training():
    loss = fluid.layers.mean(fluid.layers.fc(fluid.data("x", [None, 4]), 3))
    fluid.optimizer.SGD(0.1).minimize(loss)
    program = fluid.default_main_program()
    test = program.clone(for_test=True)
    assert [op.type for op in test.global_block().ops] == ["mul", "elementwise_add", "mean"]
    assert not [name for name in test.global_block().vars if name.endswith("@GRAD")]
    assert len(program.clone().global_block().ops) == len(program.global_block().ops)


def test_arguments_of_optimizers_stand_in_the_originals_order():
    x = fluid.data("x", [None, 2])
    loss = fluid.layers.mean(fluid.layers.fc(x, 1, param_attr="w", bias_attr="b"))
    made = fluid.optimizer.Momentum(0.1, 0.9, ["b"], True, fluid.regularizer.L2Decay(0.1))
    _, pairs = made.minimize(loss)
    assert [p.name for p, _ in pairs] == ["b"]
    with pytest.raises(TypeError, match="Momentum got 'momentum' twice"):
        fluid.optimizer.Momentum(0.1, 0.9, momentum=0.9)
    with pytest.raises(TypeError, match="SGD takes 5 arguments at most, got 6"):
        fluid.optimizer.SGD(0.1, None, None, None, None, None)


def test_scopes_that_come_again_are_numbered():
    x = fluid.layers.fill_constant([1], "float32", 1.0)
    for _ in range(2):
        with fluid.name_scope("outer"), fluid.name_scope("inner"):
            fluid.layers.relu(x)
    scopes = [op.desc.attr("op_namescope") for op in fluid.default_main_program().global_block().ops]
    assert scopes == ["/", "/outer/inner/", "/outer_1/inner/"]


def test_integers_are_divided_and_raised_towards_zero():
    x, y = fluid.data("x", [4], "int64"), fluid.data("y", [4], "int64")
    numbers = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    quotient, power = run(x / y, fluid.layers.pow(y, 0.5 * 6), x=numbers[0], y=numbers[1])
    assert quotient == [3, -3, -3, 3]
    assert power == [8, 8, -8, -8]


def test_the_state_of_a_folder_of_variables(tmp_path):
    fluid.layers.fc(fluid.data("x", [None, 4]), 3, param_attr="w", bias_attr="b")
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_params(exe, str(tmp_path / "each"))
    fluid.io.save_params(exe, str(tmp_path), filename="all")
    parameters = fluid.default_main_program().all_parameters()
    for path, listed in (("each", None), ("all", parameters)):
        state = fluid.load_program_state(str(tmp_path / path), listed)
        assert {name: value.shape for name, value in state.items()} == {"w": (4, 3), "b": (3,)}


def test_chosen_variables_of_a_state(tmp_path):
    out = fluid.layers.fc(fluid.data("x", [None, 4]), 3, param_attr="w", bias_attr="b")
    program = fluid.default_main_program()
    w, other = program.global_block().var("w"), fluid.data("other", [1])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fluid.io.save_params(exe, str(tmp_path / "each"))
    fluid.io.save_params(exe, str(tmp_path), filename="all")
    fluid.save(program, str(tmp_path / "whole"))
    assert list(fluid.load_program_state(str(tmp_path / "each"), [w])) == ["w"]
    with pytest.raises(FluidValueError, match="each has no value for 'other'"):
        fluid.load_program_state(str(tmp_path / "each"), [other])
    with pytest.raises(FluidTypeError, match="var_list holds 'w'"):
        fluid.load_program_state(str(tmp_path / "each"), ["w"])
    with pytest.raises(ValueError, match="has 2 tensors without names, and there are 1 variables"):
        fluid.load_program_state(str(tmp_path / "all"), [w])
    for path in ("whole", "whole.pdparams", "whole.pdmodel"):
        assert set(fluid.load_program_state(str(tmp_path / path), [w])) == {"w", "b"}
    fluid.layers.fc(out, 2, param_attr="later")
    with pytest.raises(FluidValueError, match="no value for the parameter 'later'"):
        fluid.load(program, str(tmp_path / "whole"), exe)


def test_programs_are_read_from_their_descriptions():
    fluid.layers.fc(fluid.data("x", [None, 4]), 3)
    read = fluid.Program.parse_from_string(fluid.default_main_program().desc.serialize_to_string())
    assert [op.type for op in read.global_block().ops] == ["mul", "elementwise_add"]
    assert (read.block(0).parent_idx, read.global_block().ops[0].attr_type("x_num_col_dims")) == (-1, "int")


def test_a_clone_for_tests_keeps_gradients_that_the_forward_part_reads():
    # ops as in PaddlePaddle 1.8.5 and 2.6.2
    x = fluid.data("x", [None, 4])
    x.stop_gradient = False
    w = fluid.layers.create_parameter([4, 1], "float32", name="w", default_initializer=fluid.initializer.Constant(0.5))
    loss = fluid.layers.mean(fluid.layers.square(fluid.layers.mul(x, w)))
    (slope,) = fluid.gradients([loss], [x])
    program = fluid.default_main_program()
    assert len(program.clone(for_test=True).global_block().ops) == len(program.global_block().ops)
    total = loss + fluid.layers.reduce_mean(fluid.layers.square(slope))
    fluid.optimizer.SGD(0.1).minimize(total)
    test = program.clone(for_test=True)
    assert not any(op.type == "sgd" for op in test.global_block().ops)
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    fed = np.arange(8, dtype="float32").reshape(2, 4) / 8
    row = fed.sum(1) / 2  # the loss is the mean of row^2, its slope in x 2 row w / 2
    for _ in range(2):  # nothing is updated
        (found,) = exe.run(test, feed={"x": fed}, fetch_list=[total.name])
        np.testing.assert_allclose(found, [(row**2).mean() + ((row * 0.5) ** 2).mean()], rtol=1e-6)


def test_tensors_as_an_index_choose_entries():
    x, mask, rows = fluid.data("x", [4, 3]), fluid.data("mask", [4, 3], "bool"), fluid.data("rows", [4], "bool")
    table, places = fluid.data("table", [2, 2], "int64"), fluid.data("places", [3], "int64")
    x.stop_gradient = False
    chosen = [x[mask], x[rows], x[table], x[places]]
    (slope,) = fluid.gradients([fluid.layers.reduce_sum(chosen[1]) + fluid.layers.reduce_sum(chosen[2])], [x])
    values = np.arange(12, dtype="float32").reshape(4, 3)
    fed = {"x": values, "mask": values % 2 == 0, "rows": np.array([True, False, True, False])}
    fed |= {"table": np.array([[0, 3], [1, 1]]), "places": np.array([2, 0, 2])}
    found = fluid.Executor(fluid.CPUPlace()).run(feed=fed, fetch_list=[*chosen, slope])
    for one, index in zip(found, ("mask", "rows", "table", "places"), strict=False):
        np.testing.assert_array_equal(one, values[fed[index]])
    np.testing.assert_array_equal(found[-1][:, 0], [2, 2, 1, 1])
