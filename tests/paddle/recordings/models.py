"""Inference models that PaddlePaddle 1.8.5 writes, with outputs: `python models.py FOLDER`. Places of operators in scripts are left out."""

import sys
from pathlib import Path

import numpy as np

FED = np.random.RandomState(3)
IMAGES = FED.rand(2, 1, 8, 8).astype("float32")
WORDS, LENGTHS = FED.randint(0, 20, (7, 1)).astype("int64"), [[3, 4]]


def images(fluid):
    """Append a small network for images; return its feeds and outputs."""
    layers = fluid.layers
    x = fluid.data("image", [None, 1, 8, 8])
    hidden = layers.batch_norm(layers.conv2d(x, 2, 3, padding=1), act="relu")
    hidden = layers.pool2d(hidden, 2, "avg", 2)
    hidden = layers.pool2d(layers.conv2d(hidden, 2, 3, act="leaky_relu", groups=2), 1, "max", global_pooling=True)
    hidden = layers.dropout(layers.reshape(hidden, [-1, 2]), 0.4)
    return {"image": IMAGES}, [layers.fc(hidden, 3, act="softmax")]


def words(fluid):
    """Append a small network for sequences; return its feeds and outputs."""
    layers = fluid.layers
    ids = fluid.data("words", [None, 1], "int64", lod_level=1)
    hidden = layers.fc(layers.embedding(ids, [20, 4]), 12)
    state, _ = layers.dynamic_lstm(hidden, 12, use_peepholes=False)
    last, most = layers.sequence_pool(state, "last"), layers.sequence_pool(state, "max")
    both = layers.concat([last, most], 1)
    return {"words": fluid.create_lod_tensor(WORDS, LENGTHS, fluid.CPUPlace())}, [layers.layer_norm(both), layers.l2_normalize(both, 1)]


MODELS = {"images": images, "words": words}


def build(fluid, name):
    """Return an executor, feeds and outputs of a model in programs of its own, whose values are set."""
    main, startup = fluid.Program(), fluid.Program()
    startup.random_seed = main.random_seed = 5
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        fed, outputs = MODELS[name](fluid)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    draws = np.random.RandomState(7)
    for v in main.list_vars():
        if v.persistable:
            tensor = fluid.global_scope().find_var(v.name).get_tensor()
            tensor.set(draws.rand(*np.array(tensor).shape).astype("float32"), fluid.CPUPlace())
    return executor, main, fed, outputs


def main():
    """Write the files."""
    import paddle.fluid as fluid
    from paddle.fluid.proto import framework_pb2

    for name in MODELS:
        folder = Path(sys.argv[1]) / name
        executor, program, fed, outputs = build(fluid, name)
        one = {"params_filename": "params"} if name == "words" else {}
        fluid.io.save_inference_model(str(folder), list(fed), outputs, executor, program, **one)
        said = framework_pb2.ProgramDesc.FromString((folder / "__model__").read_bytes())
        for op in said.blocks[0].ops:
            kept = [attr for attr in op.attrs if attr.name != "op_callstack"]
            del op.attrs[:]
            op.attrs.extend(kept)
        (folder / "__model__").write_bytes(said.SerializeToString())
        loaded, _, targets = fluid.io.load_inference_model(str(folder), executor, **one)
        found = executor.run(loaded, feed=fed, fetch_list=targets)
        np.savez(str(folder / "outputs.npz"), *found)


if __name__ == "__main__":
    main()
