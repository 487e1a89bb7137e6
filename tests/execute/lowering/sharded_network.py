"""A network with weights and biases under any optimizer, for processes that share its updates."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from pe_cli.core.types import TensorType
from pe_cli.optim.optimizers import OPTIMIZERS
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Program

WIDTHS = (12, 16, 5)


def network(rule: str, widths: tuple[int, ...] = WIDTHS, **settings: Any) -> tuple[Program, Program]:
    """Return training and startup program: softmax cross entropy of some layers w0, b0, w1, b1, ..., and a rule that updates them."""
    main, startup = Program("main"), Program("startup")
    block, rng, last = main.global_block(), np.random.default_rng(1), "x"
    block.create_var("x", TensorType((-1, widths[0])), is_data=True, stop_gradient=True)
    block.create_var("y", TensorType((-1, 1), "int64"), is_data=True, stop_gradient=True)
    for i, (rows, columns) in enumerate(itertools.pairwise(widths)):
        for name, shape in ((f"w{i}", (rows, columns)), (f"b{i}", (columns,))):
            value = rng.standard_normal(shape).astype("float32")
            NumpyArray(value)(block.create_parameter(name, TensorType(shape)), startup.global_block())
        block.append_op("mul", {"X": last, "Y": f"w{i}"}, {"Out": f"h{i}"})
        block.append_op("elementwise_add", {"X": f"h{i}", "Y": f"b{i}"}, {"Out": f"a{i}"}, {"axis": 1})
        last = f"a{i}"
        if i < len(widths) - 2:
            block.append_op("tanh", {"X": last}, {"Out": f"r{i}"})
            last = f"r{i}"
    block.append_op("softmax_with_cross_entropy", {"Logits": last, "Label": "y"}, {"Softmax": "p", "Loss": "xent"})
    block.append_op("mean", {"X": "xent"}, {"Out": "loss"})
    OPTIMIZERS[rule](learning_rate=0.1, **settings).minimize(block.var("loss"), startup)
    return main, startup


def batch(samples: int, seed: int) -> dict[str, np.ndarray]:
    """Return a batch for it."""
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((samples, WIDTHS[0])).astype("float32"), "y": rng.integers(0, WIDTHS[-1], (samples, 1))}
