"""install_check: whether a small network trains on this machine."""

from __future__ import annotations

import numpy as np

from pe_cli.paddle.errors import EnforceNotMet
from pe_cli.paddle.fluid import layers, optimizer, unique_name
from pe_cli.paddle.fluid.compiler import CompiledProgram
from pe_cli.paddle.fluid.executor import Executor
from pe_cli.paddle.fluid.framework import Program, program_guard
from pe_cli.paddle.fluid.places import CPUPlace, CUDAPlace, cpu_places, cuda_device_count, cuda_places
from pe_cli.paddle.fluid.scope import Scope, scope_guard


def run_check() -> None:
    """Train a small network on one device and on two, of the GPUs where there are some, and print what was done.

    Raises:
        EnforceNotMet: the loss does not get less; a RuntimeError.
    """
    gpus = cuda_device_count()
    single, several = (CUDAPlace(0), cuda_places()) if gpus else (CPUPlace(), cpu_places(2))
    kind = "GPU" if gpus else "CPU"
    _train(single, None)
    print(f"pe works on one {kind}.")  # noqa: T201 (asked for)
    if len(several) > 1:
        _train(single, several)
        print(f"pe works on {len(several)} {kind} devices.")  # noqa: T201 (asked for)


def _train(place: CPUPlace | CUDAPlace, places: list[CPUPlace] | list[CUDAPlace] | None) -> None:
    main, startup = Program(), Program()
    main.random_seed = startup.random_seed = 1
    with unique_name.guard(), scope_guard(Scope()), program_guard(main, startup):
        x, y = layers.data("x", [3]), layers.data("y", [1])
        loss = layers.mean(layers.square_error_cost(layers.fc(x, 1), y))
        optimizer.SGD(learning_rate=0.1).minimize(loss)
        executor = Executor(place)
        executor.run(startup)
        program = CompiledProgram(main).with_data_parallel(loss_name=loss.name, places=places) if places else main
        rows = np.linspace(-1, 1, 3 * 8, dtype="float32").reshape(8, 3)
        feed = {"x": rows, "y": rows.sum(axis=1, keepdims=True)}
        losses = [float(np.mean(executor.run(program, feed, [loss])[0])) for _ in range(10)]
    # A loss of NaN also fails here, since no comparison with it is true.
    if not losses[-1] < losses[0]:
        raise EnforceNotMet(f"the loss of a small network went from {losses[0]} to {losses[-1]}", hint="report this")


__all__ = ["run_check"]
