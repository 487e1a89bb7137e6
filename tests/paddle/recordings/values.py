"""Files of values that PaddlePaddle 1.8.5 writes after two steps, and the losses of the steps after these: `python values.py FOLDER`."""

import json
import sys
from pathlib import Path

import numpy as np

STEPS = 3


def network(fluid):
    """Append a small network with Adam; return its loss."""
    layers = fluid.layers
    x, y = fluid.data("x", [None, 4]), fluid.data("y", [None, 1])
    loss = layers.mean(layers.square(layers.fc(layers.fc(x, 3, act="relu"), 1) - y))
    fluid.optimizer.Adam(0.1).minimize(loss)
    return loss


def batches():
    """Return all batches."""
    rng = np.random.RandomState(0)
    return [{"x": rng.randn(3, 4).astype("float32"), "y": rng.randn(3, 1).astype("float32")} for _ in range(2 + STEPS)]


def losses(fluid, executor, loss, fed):
    """Return the losses of batches."""
    return [float(executor.run(feed=batch, fetch_list=[loss])[0][0]) for batch in fed]


def main():
    """Write the files."""
    import paddle.fluid as fluid

    folder = Path(sys.argv[1])
    loss = network(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    losses(fluid, executor, loss, batches()[:2])
    fluid.io.save_persistables(executor, str(folder), filename="persistables")
    fluid.io.save_vars(executor, str(folder), vars=[fluid.default_main_program().global_block().var("fc_0.w_0")])
    fluid.save(fluid.default_main_program(), str(folder / "saved"))
    (folder / "saved.pdmodel").unlink()
    (folder / "losses.json").write_text(json.dumps(losses(fluid, executor, loss, batches()[2:])) + "\n")


if __name__ == "__main__":
    main()
