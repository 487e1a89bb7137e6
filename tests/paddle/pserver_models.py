"""Networks of the recorded trainings with parameter servers, and their batches."""

from __future__ import annotations

import numpy as np

import pe_cli.paddle.fluid as fluid

L = fluid.layers
BATCH = 16


def mlp():
    """Four layers on 129 columns; returns the loss."""
    hidden, label = fluid.data("x", [None, 129]), fluid.data("y", [None, 1], "int64")
    for size in (70, 256, 100):
        hidden = L.fc(hidden, size, act="relu")
    return L.mean(L.cross_entropy(L.fc(hidden, 10, act="softmax"), label))


def table(sparse: bool):
    """The sum of rows of a table, and two layers; returns the loss."""
    words, label = fluid.data("w", [None, 1], "int64", lod_level=1), fluid.data("y", [None, 1], "int64")
    rows = L.embedding(words, [1000, 16], is_sparse=sparse, param_attr=fluid.ParamAttr("table"))
    hidden = L.fc(L.sequence_pool(rows, "sum"), 32, act="tanh")
    return L.mean(L.cross_entropy(L.fc(hidden, 4, act="softmax"), label))


def own():
    """A table that moves by a rate of its own, and two layers of which one is clipped apart; returns the loss."""
    loss = table(sparse=False)
    program = fluid.default_main_program()
    program.global_block().var("table").own_rate = 2.0
    fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(0.01, need_clip=lambda p: "w" in p.name), ["fc_0.w_0", "fc_0.b_0"])
    return loss


MODELS = {
    "own": own,
    "mlp": mlp,
    "emb_dense": lambda: table(sparse=False),
    "emb_sparse": lambda: table(sparse=True),
    "emb_distributed": lambda: table(sparse=True),
}
OPTIMIZERS = {
    "SGD": lambda: fluid.optimizer.SGD(0.1),
    "Momentum+L2": lambda: fluid.optimizer.Momentum(0.1, 0.9, regularization=fluid.regularizer.L2Decay(1e-3)),
    "Adam+decay": lambda: fluid.optimizer.Adam(L.exponential_decay(0.01, 10, 0.9, staircase=True)),
    "SGD+noam": lambda: fluid.optimizer.SGD(L.noam_decay(64, 100)),
    "SGD+globalclip": lambda: fluid.optimizer.SGD(0.1, grad_clip=fluid.clip.GradientClipByGlobalNorm(1.0)),
}


def batch(model: str, trainer: int, step: int):
    """Return what a trainer is fed at a step."""
    rng = np.random.RandomState(1000 * trainer + step)
    if model == "mlp":
        return {"x": rng.rand(BATCH, 129).astype("float32"), "y": rng.randint(0, 10, (BATCH, 1)).astype("int64")}
    lengths = rng.randint(1, 6, BATCH)
    words = rng.randint(0, 1000, (int(lengths.sum()), 1)).astype("int64")
    fed = fluid.create_lod_tensor(words, [list(map(int, lengths))], fluid.CPUPlace())
    return {"w": fed, "y": rng.randint(0, 4, (BATCH, 1)).astype("int64")}


def built(model: str, optimizer: str):
    """Return (main, startup, loss) with the optimizer's updates."""
    main, startup = fluid.Program(), fluid.Program()
    main.random_seed = startup.random_seed = 7
    with fluid.program_guard(main, startup), fluid.unique_name.guard():
        loss = MODELS[model]()
        OPTIMIZERS[optimizer]().minimize(loss)
    return main, startup, loss
