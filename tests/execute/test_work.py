"""How many devices a step is worth: by what it computes, and the same on every machine."""

from __future__ import annotations

import pytest

from pe_cli.core.types import TensorType
from pe_cli.execute.work import DEVICE, OPERATIONS, microseconds, operations, useful_devices
from pe_cli.layers.registry import find
from pe_cli.optim.rules import OPTIMIZERS
from pe_cli.program.ir import Program, program_guard


def network(width: int, train: bool = True, batched: bool = True) -> Program:
    main, startup = Program("main"), Program("startup")
    with program_guard(main, startup):
        x = find("data").fn("x", [width]) if batched else find("data").fn("x", [32, width], append_batch_size=False)
        loss = find("mean").fn(find("fc").fn(x, width))
        if train:
            OPTIMIZERS["SGD"](learning_rate=0.1).minimize(loss)
    return main


def test_products_count_two_operations_an_element_and_gradients_as_many_for_each_operand():
    program = network(40)
    types = {v.name: v.type.with_shape(*(10 if n == -1 else n for n in v.shape)) for v in program.list_vars()}
    found = {op.type: operations(op, types.__getitem__) for op in program.global_block().ops}
    assert found["mul"] == 2 * 10 * 40 * 40
    assert found["mul_grad"] == found["mul"]  # the feed needs no gradient
    assert found["mean"] is None


def test_a_recurrence_counts_its_products():
    program = Program("lstm")
    block = program.global_block()
    shapes = {"Input": (5, 7, 3), "WeightIh": (3, 16), "WeightHh": (4, 16)}
    for name, shape in shapes.items():
        block.create_var(name, TensorType(shape))
    outs = ["Out", "LastH", "LastC", "Gates", "Cells", "States"]
    op = block.append_op("padded_lstm", {s: s for s in shapes}, {s: s for s in outs}, {})
    assert operations(op, lambda name: block.var(name).type) == 2 * 5 * 7 * (3 * 16 + 4 * 16)


def test_long_steps_are_worth_all_cores_and_short_ones_one():
    assert useful_devices(network(8), 16, 64) == 1
    assert useful_devices(network(2000), 256, 4) == 4
    wide = useful_devices(network(700), 256, 64)
    assert 2 <= wide < 64


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_no_other_number_of_devices_would_take_less(most):
    for width in (20, 200, 500):
        program = network(width)
        alone = microseconds(program, 128)
        chosen = useful_devices(program, 128, most)
        assert 1 <= chosen <= most
        assert all(alone / chosen + DEVICE * (chosen - 1) <= alone / n + DEVICE * (n - 1) for n in range(1, most + 1))
    assert microseconds(network(500), 128) > 2 * 128 * 500 * 500 / OPERATIONS


def test_devices_that_would_all_do_the_same_are_worth_nothing():
    assert useful_devices(network(2000, train=False, batched=False), 256, 8) == 1


def test_sizes_that_only_data_shows_speak_for_no_fewer():
    program = Program("unknown")
    block = program.global_block()
    block.create_var("x", TensorType((-1, -1)), is_data=True, stop_gradient=True)
    block.append_op("relu", {"X": "x"}, {"Out": "y"}, {})
    assert useful_devices(program, 16, 6) == 6
