"""What `paddle.Model` of PaddlePaddle 2.6.2 does while it trains: run by it (`fit.py FOLDER`), and by tests on what it wrote there."""

import json
import sys
from pathlib import Path

import numpy as np

#: How the optimizer is made, and the arguments of `fit` beside the data.
KINDS = {
    "by steps": (lambda o: o.Momentum(o.lr.StepDecay(0.1, 3, 0.5), 0.9), {"eval_freq": 2}),
    "by epochs": (lambda o: o.SGD(o.lr.ExponentialDecay(0.1, 0.5)), {}),
}


def network(paddle):
    """Return a model of convolution, norm, recurrence and two heads."""
    nn = paddle.nn

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.rows, self.norm = nn.Conv1D(4, 6, 2), nn.BatchNorm1D(6)
            self.steps, self.last = nn.GRU(2, 5), nn.LayerNorm(5)
            self.heads = nn.LayerList([nn.Linear(5, 4), nn.Linear(5, 4)])

        def forward(self, x):
            out, _ = self.steps(nn.functional.relu(self.norm(self.rows(x))))
            last = self.last(out[:, -1])
            return self.heads[0](last) + self.heads[1](last)

    spec = paddle.static.InputSpec
    return paddle.Model(Net(), [spec([None, 4, 3], "float32", "x")], [spec([None, 1], "int64", "y")])


def data(paddle, rows, seed):
    """Return a data set."""
    random = np.random.RandomState(seed)
    x, y = random.randn(rows, 4, 3).astype("float32"), random.randint(0, 4, (rows, 1))

    class Rows(paddle.io.Dataset):
        def __getitem__(self, i):
            return x[i], y[i]

        def __len__(self):
            return rows

    return Rows()


def run(paddle, kind, start, folder):
    """Train; return what callbacks hear, what is measured, and the names of the files.

    Args:
        paddle: the package.
        kind: of `KINDS`.
        start: path of the first values.
        folder: files are written to.
    """
    make, given = KINDS[kind]
    model, optimizer = network(paddle), make(paddle.optimizer)
    model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), [paddle.metric.Accuracy(topk=(1, 2))])
    model.load(start, reset_optimizer=True)
    heard = []

    def numbers(logs):
        return {name: np.ravel(value).astype(float).tolist() for name, value in logs.items()}

    class Hears(paddle.callbacks.Callback):
        def on_train_begin(self, logs=None):
            heard.append(["begin", {name: self.params[name] for name in ("epochs", "steps", "verbose", "metrics")}])

        def on_train_batch_end(self, step, logs=None):
            heard.append(["step", step, numbers(logs), optimizer.get_lr()])

        def on_epoch_end(self, epoch, logs=None):
            heard.append(["epoch", epoch, sorted(logs)])

        def on_eval_begin(self, logs=None):
            heard.append(["eval begins", logs])

        def on_eval_end(self, logs=None):
            heard.append(["eval", numbers(logs)])

    more = [paddle.callbacks.LRScheduler(by_step=False, by_epoch=True)] if kind == "by epochs" else []
    given = {"batch_size": 8, "epochs": 3, "verbose": 0, "shuffle": False, "save_dir": str(folder), "save_freq": 2, **given}
    model.fit(data(paddle, 32, 0), data(paddle, 16, 1), callbacks=[Hears(), *more], **given)
    found = model.evaluate(data(paddle, 20, 1), batch_size=8, verbose=0)
    (out,) = model.predict(data(paddle, 6, 2), batch_size=4, stack_outputs=True, verbose=0)
    return {
        "heard": heard,
        "evaluated": numbers(found),
        "predicted": np.ravel(out).astype(float).tolist(),
        "files": sorted(path.name for path in Path(folder).iterdir()),
        "saved": sorted(paddle.load(str(Path(folder) / "final.pdparams"))),
        "kept": sorted(paddle.load(str(Path(folder) / "final.pdopt"))),
    }


def main():
    """Record into a folder."""
    import tempfile

    import paddle

    paddle.enable_static()
    target = Path(sys.argv[1])
    model = network(paddle)
    model.prepare(paddle.optimizer.SGD(0.1), paddle.nn.CrossEntropyLoss())
    model.save(str(target / "start"))
    (target / "start.pdopt").unlink()
    found = {}
    for kind in KINDS:
        with paddle.utils.unique_name.guard(), tempfile.TemporaryDirectory() as folder:
            programs = paddle.static.Program(), paddle.static.Program()
            with paddle.static.program_guard(*programs), paddle.static.scope_guard(paddle.static.Scope()):
                found[kind] = run(paddle, kind, str(target / "start"), folder)
    (target / "fit.json").write_text(json.dumps(found, sort_keys=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
