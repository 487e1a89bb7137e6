"""Model: a network with its loss, optimizer and metrics, and the loops over data that belong to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.executor import Executor
from pe_cli.paddle.fluid.framework import Program, default_startup_program, program_guard
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.hapi import model_files
from pe_cli.paddle.hapi.callbacks import CallbackList, EarlyStopping, configured
from pe_cli.paddle.hapi.summary import summary
from pe_cli.paddle.io import DataLoader, Dataset
from pe_cli.paddle.metric import Metric
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.static.serialized import InputSpec


def _list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


@dataclass(frozen=True)
class Built:
    """A program of one mode.

    Args:
        program: of it.
        feeds: inputs, then labels.
        outputs: of the network.
        losses: one number each.
        states: for each metric what its `compute` gave.
    """

    program: Program
    feeds: list[Any]
    outputs: list[Any]
    losses: list[Any]
    states: list[list[Any]]


class Model:
    """A network of `paddle.nn` with what trains and measures it, in static mode.

    Values are in the global scope: those of parameters from the startup program that the network was made in.

    Args:
        network: a `paddle.nn.Layer`.
        inputs: InputSpec of what the network is fed, or a list of them.
        labels: InputSpec of what the loss and metrics take beside the outputs, or a list of them.

    Raises:
        FluidTypeError: network is no layer, or inputs and labels are no InputSpecs; a TypeError.
    """

    def __init__(self, network: Any, inputs: Any = None, labels: Any = None) -> None:
        if not isinstance(network, Layer):
            raise FluidTypeError(f"Model takes a paddle.nn.Layer, got {type(network).__name__}")
        self.network, self._inputs, self._labels = network, _list(inputs), _list(labels)
        if not self._inputs or not all(isinstance(each, InputSpec) for each in (*self._inputs, *self._labels)):
            raise FluidTypeError("a static graph needs the shapes of what it is fed", hint="inputs=InputSpec([None, 784], 'float32', 'x')")
        self._startup = default_startup_program()
        self._executor = Executor()
        self._loss: Callable[..., Any] | None = None
        self._optimizer: Any = None
        self._metrics: list[Metric] = []
        self._built: dict[str, Built] = {}
        self.stop_training = False

    def prepare(self, optimizer: Any = None, loss: Any = None, metrics: Any = None) -> None:
        """Say what trains and measures the network.

        Args:
            optimizer: of `paddle.optimizer`; needed for training.
            loss: layer or function (outputs..., labels...) -> loss or list of losses, which are added.
            metrics: of `paddle.metric`, or a list of them.

        Raises:
            FluidTypeError: loss cannot be called, or a metric is none; a TypeError.
        """
        if loss is not None and not callable(loss):
            raise FluidTypeError(f"loss must be a function or a layer, got {type(loss).__name__}")
        for metric in _list(metrics):
            if not isinstance(metric, Metric):
                raise FluidTypeError(f"metrics must be of paddle.metric, got {type(metric).__name__}")
        self._optimizer, self._loss, self._metrics = optimizer, loss, _list(metrics)
        # Programs of the old loss would go on training it.
        self._built.clear()

    # --- programs ------------------------------------------------------------------------------------------------------

    def _of(self, mode: str) -> Built:
        if mode not in self._built:
            self._built[mode] = self._build(mode)
        return self._built[mode]

    def _build(self, mode: str) -> Built:
        """Make the program of train, eval or predict, and give its variables first values.

        Raises:
            FluidValueError: there is no loss or optimizer; a ValueError.
        """
        if mode == "train" and (self._optimizer is None or self._loss is None):
            raise FluidValueError("training needs an optimizer and a loss", hint="call prepare(optimizer, loss)")
        program, startup = Program(), Program()
        # The seed of the program that made the parameters, so that dropout repeats with it.
        program.random_seed = self._startup.random_seed
        # A program of its own for each mode: the layers append other ops for training than for tests.
        with program_guard(program, startup):
            (self.network.train if mode == "train" else self.network.eval)()
            inputs, losses, states = self._declared(self._inputs, "input"), [], []
            labels = self._declared(self._labels, "label") if mode != "predict" else []
            outputs = _list(self.network(*inputs))
            if mode != "predict":
                # A loss may have a number for each sample; what is minimised is one.
                losses = [layers.mean(v) for v in _list(self._loss(*outputs, *labels) if self._loss else None)]
                states = [_list(metric.compute(*outputs, *labels)) for metric in self._metrics]
            if mode == "train":
                self._optimizer.minimize(losses[0] if len(losses) == 1 else layers.sums(losses))
        self._initialise(program, startup)
        return Built(program, [*inputs, *labels], outputs, losses, states)

    @staticmethod
    def _declared(specs: Sequence[InputSpec], kind: str) -> list[Any]:
        return [
            layers.data(spec.name or f"{kind}_{i}", spec.shape, append_batch_size=False, dtype=spec.dtype) for i, spec in enumerate(specs)
        ]

    def _initialise(self, program: Program, startup: Program) -> None:
        """Run what gives the variables of a program their first values, where they have none."""
        # A network's parameters are shared by its three programs: only those without a value are given their first.
        root = global_scope().root()
        missing = {v.name for v in program.list_vars() if v.persistable and not root.has_value(v.name)}
        for source in (self._startup, startup):
            # Ops that would overwrite a value that is there are left out, and with them the whole program where nothing is missing.
            chosen = source.clone()
            # The optimizer's state may be missing where parameters are there, as after loading.
            block = chosen.global_block()
            block.ops = [op for op in block.ops if missing & set(op.output_names())]
            if block.ops:
                self._executor.run(chosen)

    # --- batches -------------------------------------------------------------------------------------------------------

    def _run(self, mode: str, inputs: Any, labels: Any, fetches: Sequence[Any]) -> list[Any]:
        built = self._of(mode)
        values = [*_list(inputs), *(_list(labels) if mode != "predict" else [])]
        if len(values) != len(built.feeds):
            raise FluidValueError(f"a batch has {len(values)} parts, and the model takes {', '.join(v.name for v in built.feeds)}")
        return self._executor.run(built.program, {v.name: np.asarray(a) for v, a in zip(built.feeds, values, strict=True)}, list(fetches))

    def _measured(self, mode: str, inputs: Any, labels: Any) -> Any:
        built = self._of(mode)
        flat = [v for state in built.states for v in state]
        found = self._run(mode, inputs, labels, [*built.losses, *flat])
        losses, rest = found[: len(built.losses)], iter(found[len(built.losses) :])
        values = [metric.update(*[next(rest) for _ in state]) for metric, state in zip(self._metrics, built.states, strict=True)]
        losses = [np.reshape(v, -1) for v in losses]
        return (losses, values) if self._metrics else losses

    def train_batch(self, inputs: Any, labels: Any = None) -> Any:
        """Update the parameters by one batch: arrays of the inputs and the labels.

        Returns:
            List of losses; where there are metrics, that and what their `update` returned.
        """
        return self._measured("train", inputs, labels)

    def eval_batch(self, inputs: Any, labels: Any = None) -> Any:
        """Measure one batch; arguments and values of `train_batch`."""
        return self._measured("eval", inputs, labels)

    def predict_batch(self, inputs: Any) -> list[Any]:
        """Return the outputs for one batch, as arrays."""
        return self._run("predict", inputs, None, self._of("predict").outputs)

    # --- loops over data -----------------------------------------------------------------------------------------------

    def fit(  # noqa: PLR0913, PLR0917 (the original's arguments)
        self,
        train_data: Any = None,
        eval_data: Any = None,
        batch_size: int = 1,
        epochs: int = 1,
        eval_freq: int = 1,
        log_freq: int = 10,
        save_dir: Any = None,
        save_freq: int = 1,
        verbose: int = 2,
        drop_last: bool = False,
        shuffle: bool = True,
        num_workers: int = 0,
        callbacks: Any = None,
        accumulate_grad_batches: int = 1,
        num_iters: int | None = None,
    ) -> None:
        """Train.

        Args:
            train_data: `paddle.io.Dataset`, or batches such as a `DataLoader` gives.
            eval_data: the same, that is measured.
            batch_size: samples of a batch of a Dataset.
            epochs: passes over train_data.
            eval_freq: epochs between two measurements; the first epoch is measured.
            log_freq: batches between two lines.
            save_dir: folder; every save_freq epochs there are `EPOCH.pdparams` and others in it, at the end `final`.
            save_freq: epochs.
            verbose: 0 prints nothing, 1 a line for an epoch, 2 also every log_freq batches.
            drop_last, shuffle, num_workers: of the loader of train_data, where it is a Dataset.
            callbacks: of `paddle.callbacks`, or objects with some of their methods. A scheduler of the optimizer is taken a step further
                after every batch, unless there is a `paddle.callbacks.LRScheduler`.
            accumulate_grad_batches: only 1.
            num_iters: steps at most; whole epochs otherwise.

        Raises:
            FluidValueError: gradients of several batches are to be added, num_iters is below 1, or there are no batches; a ValueError.
        """
        if accumulate_grad_batches != 1:
            raise FluidValueError("accumulate_grad_batches is for the dynamic mode", hint="fluid.optimizer.GradientMergeOptimizer")
        batches, steps = self._batches(train_data, batch_size, shuffle, drop_last, num_workers)
        left = _Left(num_iters)
        if num_iters is not None and steps is not None:
            epochs, steps = num_iters // steps + 1, min(num_iters, steps)
        told = self._told(callbacks, {"epochs": epochs, "steps": steps, "verbose": verbose}, log_freq, save_freq, save_dir)
        if eval_data is None and any(isinstance(each, EarlyStopping) for each in told):
            warnings.warn("EarlyStopping needs eval_data", stacklevel=2)
        self.stop_training = False
        logs: dict[str, Any] = {}
        told.call("on_train_begin", {})
        for epoch in range(epochs):
            told.call("on_epoch_begin", epoch, {})
            logs = self._pass("train", batches, told, left)
            told.call("on_epoch_end", epoch, logs)
            if eval_data is not None and epoch % eval_freq == 0:
                self._evaluated(eval_data, batch_size, num_workers, told, _Left(None))
            if self.stop_training:
                break
        told.call("on_train_end", logs)

    def _told(self, callbacks: Any, params: dict[str, Any], log_freq: int = 1, save_freq: int = 1, save_dir: Any = None) -> CallbackList:
        return configured(callbacks, self, {"batch_size": None, "metrics": self._names(), **params}, log_freq, save_freq, save_dir)

    def _names(self) -> list[str]:
        """Return the names of what is measured."""
        return [*(["loss"] if self._loss else []), *(name for metric in self._metrics for name in _list(metric.name()))]

    def evaluate(
        self,
        eval_data: Any,
        batch_size: int = 1,
        log_freq: int = 10,
        verbose: int = 2,
        num_workers: int = 0,
        callbacks: Any = None,
        num_iters: int | None = None,
    ) -> dict[str, Any]:
        """Measure all batches; arguments of `fit`.

        Returns:
            `loss`, a list of those of the last batch, and the value of every metric over all batches by its name.
        """
        told = self._told(callbacks, {"epochs": None, "steps": None, "verbose": verbose}, log_freq)
        logs = self._evaluated(eval_data, batch_size, num_workers, told, _Left(num_iters))
        return {name: logs[name] for name in self._names()}

    def _evaluated(self, data: Any, size: int, workers: int, told: CallbackList, left: _Left) -> dict[str, Any]:
        batches, steps = self._batches(data, size, False, False, workers)
        told.call("on_eval_begin", {"steps": steps, "metrics": self._names()})
        logs = self._pass("eval", batches, told, left)
        told.call("on_eval_end", logs)
        return logs

    def predict(
        self,
        test_data: Any,
        batch_size: int = 1,
        num_workers: int = 0,
        stack_outputs: bool = False,
        verbose: int = 1,
        callbacks: Any = None,
    ) -> list[Any]:
        """Return every output, as a list of batches or, with stack_outputs, one array; labels in a sample are left out."""
        told = self._told(callbacks, {"epochs": None, "steps": None, "verbose": verbose})
        batches, steps = self._batches(test_data, batch_size, False, False, num_workers)
        told.call("on_predict_begin", {"steps": steps})
        made = []
        for i, batch in enumerate(batches()):
            told.call("on_predict_batch_begin", i, {})
            made.append(self.predict_batch(batch[: len(self._inputs)]))
            told.call("on_predict_batch_end", i, {"step": i, "batch_size": len(batch[0])})
        told.call("on_predict_end", {})
        columns = [list(column) for column in zip(*made, strict=True)]
        return [np.concatenate(column) for column in columns] if stack_outputs else columns

    def _pass(self, mode: str, batches: Callable[[], Iterator[list[Any]]], told: CallbackList, left: _Left) -> dict[str, Any]:
        """Go over the batches once; return the logs of the last one."""
        for metric in self._metrics:
            metric.reset()
        first = len(self._inputs)
        logs: dict[str, Any] = {}
        for step, batch in enumerate(batches()):
            told.call(f"on_{mode}_batch_begin", step, logs)
            found = self._measured(mode, batch[:first], batch[first:])
            losses = [float(v[0]) for v in (found[0] if self._metrics else found)]
            logs |= {"loss": losses} if self._loss else {}
            for metric in self._metrics:
                logs |= dict(zip(_list(metric.name()), _list(metric.accumulate()), strict=True))
            logs |= {"step": step, "batch_size": len(batch[0])}
            told.call(f"on_{mode}_batch_end", step, logs)
            if left.none():
                self.stop_training = True
                break
        if not logs:
            raise FluidValueError("there are no batches", hint="fewer samples than batch_size, with drop_last?")
        return logs

    def _batches(
        self, data: Any, size: int, shuffle: bool, drop_last: bool, workers: int
    ) -> tuple[Callable[[], Iterator[list[Any]]], int | None]:
        """Return what gives all batches of some data, and how many there are where that is known."""
        if data is None:
            raise FluidValueError("there is no data", hint="give a paddle.io.Dataset, or a DataLoader")
        loader = DataLoader(data, None, None, True, None, size, shuffle, drop_last, None, workers) if isinstance(data, Dataset) else data
        rows = ("input", self._inputs), ("label", self._labels)
        feeds = [spec.name or f"{kind}_{i}" for kind, row in rows for i, spec in enumerate(row)]

        def batches() -> Iterator[list[Any]]:
            for batch in loader() if callable(loader) else loader:
                parts = _flat(batch)
                yield [parts[0][name] for name in feeds] if isinstance(parts[0], dict) else parts

        try:
            return batches, len(loader)
        except TypeError:
            return batches, None

    # --- values --------------------------------------------------------------------------------------------------------

    def parameters(self, *args: Any, **given: Any) -> list[Any]:
        """Return the parameters of the network."""
        return list(self.network.parameters(*args, **given))

    def save(self, path: str, training: bool = True) -> None:
        """Save PATH.pdparams, and PATH.pdopt where it has trained; or an inference model.

        Args:
            path: without its ending.
            training: False saves PATH.pdmodel and PATH.pdiparams, for `static.load_inference_model`.
        """
        if not training:
            from pe_cli.paddle.static.inference import save_inference_model

            built = self._of("predict")
            save_inference_model(path, built.feeds, built.outputs, self._executor, built.program)
            return
        trained = "train" in self._built
        model_files.write(path, self.network, self._of("train" if trained else "predict").program, trained)

    def load(self, path: str, skip_mismatch: bool = False, reset_optimizer: bool = False) -> None:
        """Load what `save` saved for training; arguments and errors are those of `model_files.read`."""
        program = self._of("train" if self._optimizer is not None and self._loss is not None else "predict").program
        model_files.read(path, self.network, program, skip_mismatch=skip_mismatch, reset_optimizer=reset_optimizer)

    def summary(self, input_size: Any = None, dtype: Any = None) -> dict[str, int]:
        """Print the layers of the network; see `paddle.summary`. The sizes are those of the inputs, unless others are given."""
        return summary(self.network, self._inputs if input_size is None else input_size, dtype)


def _flat(batch: Any) -> list[Any]:
    """Return the parts of a batch; inputs and labels may be lists of their own."""
    return [part for each in batch for part in _flat(each)] if isinstance(batch, (list, tuple)) else [batch]


class _Left:
    """Counts steps down; None counts nothing."""

    def __init__(self, steps: int | None) -> None:
        if steps is not None and steps < 1:
            raise FluidValueError(f"num_iters is {steps}", hint="at least 1")
        self._steps = steps

    def none(self) -> bool:
        """Whether the step that is done was the last one."""
        if self._steps is not None:
            self._steps -= 1
        return self._steps == 0
