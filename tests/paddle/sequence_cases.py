"""Networks on sequences that are run here and were run by PaddlePaddle 1.8.5, whose values are in goldens/sequences.npz.

A case is (build, feeds, wanted): build(fluid, feeds) -> outputs; feeds: name -> (array, lengths or None); wanted: variables
whose gradient of mean(first output squared) is compared. The text runs under Python 3.7 and 3.11.
"""

from __future__ import annotations

import numpy as np


def rows(shape, seed, low=-1.0, high=1.0):
    return np.random.RandomState(seed).uniform(low, high, shape).astype("float32")


def ids(count, high, seed, dtype="int64"):
    return np.random.RandomState(seed).randint(0, high, (count, 1)).astype(dtype)


def value(fluid, name, shape, seed):
    array = rows(shape, seed, -0.5, 0.5)
    return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(array))


def pool(kind):
    return lambda f, x: [f.layers.sequence_pool(x["x"], kind, pad_value=-7.0)]


def lstm(**given):
    def build(f, x):
        peep = given.get("use_peepholes", True)
        weights = {"param_attr": value(f, "w", (3, 12), 5), "bias_attr": value(f, "b", (1, 21 if peep else 12), 6)}
        states = {"h_0": x.get("h"), "c_0": x.get("c")}
        return list(f.layers.dynamic_lstm(x["x"], 12, **weights, **states, **given))

    return build


def gru(**given):
    def build(f, x):
        weights = {"param_attr": value(f, "w", (3, 9), 5), "bias_attr": value(f, "b", (1, 9), 6)}
        return [f.layers.dynamic_gru(x["x"], 3, h_0=x.get("h"), **weights, **given)]

    return build


def lstmp(**given):
    def build(f, x):
        weight = f.ParamAttr(initializer=f.initializer.Constant(0.3))  # of two matrices
        states = {"h_0": x.get("h"), "c_0": x.get("c")}
        bias = value(f, "b", (1, 21), 6)
        return list(f.layers.dynamic_lstmp(x["x"], 12, 2, param_attr=weight, bias_attr=bias, **states, **given))

    return build


def crf(f, x):
    return [f.layers.linear_chain_crf(x["x"], x["y"], param_attr=value(f, "w", (6, 4), 7), length=x.get("n"))]


def decode(f, x):
    cost = f.layers.linear_chain_crf(x["x"], x["y"], param_attr=value(f, "w", (6, 4), 7), length=x.get("n"))
    attr = f.ParamAttr(name="w")
    return [
        f.layers.crf_decoding(x["x"], attr, length=x.get("n")),
        f.layers.crf_decoding(x["x"], attr, label=x["y"], length=x.get("n")),
        cost,
    ]


X, X2, XW = (rows((6, 3), 1), [[3, 1, 2]]), (rows((6, 3), 1), [[2, 1], [3, 1, 2]]), (rows((6, 4), 1), [[4, 0, 2]])
GATES = {"x": (rows((6, 12), 1), [[3, 1, 2]]), "h": (rows((3, 3), 2), None), "c": (rows((3, 3), 3), None)}
GRU = {"x": (rows((6, 9), 1), [[3, 1, 2]])}
TAGS = {"x": (rows((6, 4), 1), [[3, 1, 2]]), "y": (ids(6, 4, 2), [[3, 1, 2]])}
BLOCK = {
    "x": (rows((3, 4, 4), 1), None), "y": (np.random.RandomState(3).randint(0, 4, (3, 4, 1)).astype("int64"), None),
    "n": (np.array([[3], [1], [4]], "int64"), None),
}  # fmt: skip
WORDS = {"x": (ids(6, 5, 1), [[3, 1, 2]]), "y": (ids(7, 5, 2), [[2, 2, 3]])}


def numbers(f, *values):
    return f.layers.assign(np.array([[v] for v in values], "int64"))


def padded(f, x):
    block, length = f.layers.sequence_pad(x["x"], f.layers.assign(np.array([0.5], "float32")))
    return [f.layers.sequence_unpad(f.layers.scale(block, 2.0), length), block, length]


CASES = {
    **{f"pool {kind}": (pool(kind), {"x": X}, ["x"]) for kind in ("sum", "average", "sqrt", "max", "last", "first")},
    **{f"pool {kind} empty": (pool(kind), {"x": XW}, ["x"]) for kind in ("sum", "average", "sqrt", "max", "last")},
    "pool of two levels": (pool("sum"), {"x": X2}, ["x"]),
    "softmax": (lambda f, x: [f.layers.sequence_softmax(x["x"])], {"x": (rows((6, 1), 1), [[3, 1, 2]])}, ["x"]),
    "expand rows": (lambda f, x: [f.layers.sequence_expand(x["x"], x["y"])], {"x": (rows((3, 2), 1), None), "y": X}, ["x"]),
    "expand sequences": (
        lambda f, x: [f.layers.sequence_expand(x["x"], x["y"], ref_level=0)],
        {"x": (rows((4, 2), 1), [[3, 1]]), "y": X2}, ["x"],
    ),
    "expand as": (lambda f, x: [f.layers.sequence_expand_as(x["x"], x["y"])], {"x": (rows((3, 2), 1), None), "y": XW}, ["x"]),
    "concat": (lambda f, x: [f.layers.sequence_concat([x["x"], x["y"]])], {"x": X, "y": (rows((5, 3), 2), [[2, 0, 3]])}, ["x", "y"]),
    "reverse": (lambda f, x: [f.layers.sequence_reverse(x["x"])], {"x": X}, ["x"]),
    "slice": (
        lambda f, x: [f.layers.sequence_slice(x["x"], numbers(f, 1, 0, 0), numbers(f, 2, 1, 1))], {"x": X}, ["x"],
    ),
    "pad": (
        lambda f, x: list(f.layers.sequence_pad(x["x"], f.layers.assign(np.array([9.0], "float32")), maxlen=5)),
        {"x": XW}, ["x"],
    ),
    "pad and unpad": (padded, {"x": X}, ["x"]),
    "unpad": (
        lambda f, x: [f.layers.sequence_unpad(x["x"], x["n"])],
        {"x": (rows((3, 4, 2), 1), None), "n": (np.array([3, 1, 4], "int64"), None)}, ["x"],
    ),
    "reshape": (lambda f, x: [f.layers.sequence_reshape(x["x"], 2)], {"x": XW}, ["x"]),
    "enumerate": (lambda f, x: [f.layers.sequence_enumerate(x["x"], 2, pad_value=9)], {"x": WORDS["x"]}, []),
    "scatter": (
        lambda f, x: [f.layers.sequence_scatter(x["x"], x["i"], x["u"])],
        {"x": (rows((3, 5), 1), None), "i": (ids(6, 5, 2), [[3, 1, 2]]), "u": (rows((6, 1), 3), [[3, 1, 2]])}, ["x", "u"],
    ),
    "mask": (
        lambda f, x: [f.layers.sequence_mask(x["n"], dtype="float32")], {"n": (np.array([3, 1, 4], "int64"), None)}, [],
    ),
    "conv": (
        lambda f, x: [f.layers.sequence_conv(x["x"], 2, 3, param_attr=value(f, "w", (9, 2), 4), bias_attr=value(f, "b", (2,), 5))],
        {"x": X}, ["x", "w", "b"],
    ),
    "conv forward": (
        lambda f, x: [f.layers.sequence_conv(x["x"], 2, 2, padding_start=0, param_attr=value(f, "w", (6, 2), 4), bias_attr=False)],
        {"x": X}, ["x", "w"],
    ),
    "lod_reset to numbers": (
        lambda f, x: [f.layers.sequence_pool(f.layers.lod_reset(x["x"], target_lod=[0, 1, 6]), "sum")], {"x": X}, ["x"],
    ),
    "lod_reset to another's": (
        lambda f, x: [f.layers.sequence_pool(f.layers.lod_reset(x["x"], y=x["y"]), "sum")],
        {"x": X, "y": (rows((6, 1), 2), [[1, 5]])}, ["x"],
    ),
    "lod_append": (lambda f, x: [f.layers.lod_append(x["x"], [0, 1, 2, 6])], {"x": X}, []),
    "embedding, fc and pool": (
        lambda f, x: [
            f.layers.sequence_pool(
                f.layers.fc(
                    f.layers.embedding(x["x"], [5, 3], param_attr=value(f, "w", (5, 3), 4)), 2, act="tanh",
                    param_attr=value(f, "v", (3, 2), 5), bias_attr=False,
                ),
                "average",
            )
        ],
        {"x": WORDS["x"]}, ["w", "v"],
    ),
    "lstm": (lstm(use_peepholes=False), {"x": GATES["x"]}, ["x", "w", "b"]),
    "lstm with peepholes and states": (lstm(), GATES, ["x", "w", "b", "h", "c"]),
    "lstm backwards": (lstm(is_reverse=True), GATES, ["x", "w", "b", "h", "c"]),
    "lstm of other activations": (
        lstm(gate_activation="tanh", cell_activation="relu", candidate_activation="sigmoid"),
        {"x": GATES["x"]}, ["x", "w", "b"],
    ),
    "lstmp": (lstmp(), {"x": GATES["x"]}, ["x", "b"]),
    "lstmp with states": (lstmp(), {**GATES, "h": (rows((3, 2), 2), None)}, ["x", "b", "h", "c"]),
    "lstmp backwards": (lstmp(is_reverse=True, proj_activation="identity"), {"x": GATES["x"]}, ["x", "b"]),
    "gru": (gru(), GRU, ["x", "w", "b"]),
    "gru with a state, backwards": (gru(is_reverse=True), {**GRU, "h": GATES["h"]}, ["x", "w", "b", "h"]),
    "gru of the first paper": (gru(origin_mode=True), {**GRU, "h": GATES["h"]}, ["x", "w", "b", "h"]),
    "gru of other activations": (gru(gate_activation="tanh", candidate_activation="relu"), GRU, ["x", "w", "b"]),
    "crf": (crf, TAGS, ["x", "w"]),
    "crf of a block": (crf, BLOCK, ["x", "w"]),
    "crf decoding": (decode, TAGS, []),
    "crf decoding of a block": (decode, BLOCK, []),
    "edit distance": (lambda f, x: list(f.layers.edit_distance(x["x"], x["y"])), WORDS, []),
    "edit distance without ids, not divided": (
        lambda f, x: list(f.layers.edit_distance(x["x"], x["y"], normalized=False, ignored_tokens=[1])), WORDS, [],
    ),
    "row_conv": (
        lambda f, x: [f.layers.row_conv(x["x"], 2, param_attr=value(f, "w", (3, 3), 4))], {"x": X}, ["x", "w"],
    ),
}  # fmt: skip


def run(fluid, name):
    """Return key -> value of a case: outputs `name|i`, their lengths `name|i.LEVEL`, gradients `name|v@GRAD`."""
    build, feeds, wanted = CASES[name]
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = 1
    with fluid.program_guard(main, startup), fluid.unique_name.guard(), fluid.scope_guard(fluid.Scope()):
        variables = {}
        for key, (array, lengths) in feeds.items():
            sizes = [None, *array.shape[1:]]
            variables[key] = fluid.data(key, sizes, str(array.dtype), lod_level=len(lengths or []))
            variables[key].stop_gradient = array.dtype != np.float32
        outputs = build(fluid, variables)
        fetched = list(outputs)
        if wanted:
            loss = fluid.layers.mean(fluid.layers.square(outputs[0]))
            targets = [variables.get(w) or main.global_block().var(w) for w in wanted]
            fetched += fluid.gradients([loss], targets)
        executor = fluid.Executor(fluid.CPUPlace())
        executor.run(startup)
        place = fluid.CPUPlace()
        feed = {k: fluid.create_lod_tensor(a, n, place) if n else a for k, (a, n) in feeds.items()}
        values = executor.run(main, feed=feed, fetch_list=fetched, return_numpy=False)
    found = {}
    for i, v in enumerate(values):
        key = f"{name}|{i}" if i < len(outputs) else f"{name}|{wanted[i - len(outputs)]}@GRAD"
        found[key] = np.array(v)
        if i < len(outputs):
            for level, lengths in enumerate(v.recursive_sequence_lengths()):
                found[f"{key}.{level}"] = np.array(lengths, "int64")
    return found
