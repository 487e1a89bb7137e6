"""A program that PaddlePaddle 1.8.5 trains, as its `fluid.save` writes it, and the losses of steps after that: `python whole.py FOLDER`."""

import json
import sys
from pathlib import Path

import numpy as np

STEPS = 3


def network(fluid):
    """Append a small network for images with Momentum; return its loss and accuracy."""
    layers = fluid.layers
    x, label = fluid.data("image", [None, 1, 6, 6]), fluid.data("label", [None, 1], "int64")
    hidden = layers.batch_norm(layers.conv2d(x, 2, 3, padding=1, bias_attr=False), act="relu")
    prob = layers.fc(layers.pool2d(hidden, 2, "max", 2), 3, act="softmax")
    loss = layers.mean(layers.cross_entropy(prob, label))
    accuracy = layers.accuracy(prob, label)
    fluid.optimizer.Momentum(0.1, 0.9).minimize(loss)
    return loss, accuracy


def batches():
    """Return the batches of the steps."""
    rng = np.random.RandomState(0)
    return [{"image": rng.rand(6, 1, 6, 6).astype("float32"), "label": rng.randint(0, 3, (6, 1)).astype("int64")} for _ in range(STEPS)]


def main():
    """Write the files."""
    import paddle.fluid as fluid
    from paddle.fluid.proto import framework_pb2

    folder = Path(sys.argv[1])
    fluid.default_startup_program().random_seed = 3
    loss, accuracy = network(fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    fluid.save(fluid.default_main_program(), str(folder / "saved"))
    said = framework_pb2.ProgramDesc.FromString((folder / "saved.pdmodel").read_bytes())
    for op in said.blocks[0].ops:
        kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
        del op.attrs[:]
        op.attrs.extend(kept)
    (folder / "saved.pdmodel").write_bytes(said.SerializeToString())
    found = [[float(v) for v in executor.run(feed=batch, fetch_list=[loss, accuracy])] for batch in batches()]
    (folder / "losses.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
