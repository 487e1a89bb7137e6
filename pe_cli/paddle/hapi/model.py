"""Model: a network with its loss, optimizer and metrics, and the loops over data that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import io as files
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.executor import Executor
from pe_cli.paddle.fluid.framework import Program, default_startup_program, program_guard
from pe_cli.paddle.fluid.scope import global_scope
from pe_cli.paddle.hapi.summary import summary
from pe_cli.paddle.io import DataLoader, Dataset
from pe_cli.paddle.metric import Metric
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.static.serialized import InputSpec
from pe_cli.program.ir import Variable


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
    ) -> None:
        """Train.

        Args:
            train_data: `paddle.io.Dataset`, or batches such as a `DataLoader` gives.
            eval_data: the same, that is measured.
            batch_size: samples of a batch of a Dataset.
            epochs: passes over train_data.
            eval_freq: epochs between two measurements.
            log_freq: batches between two lines.
            save_dir: folder; every save_freq epochs there are `EPOCH.pdparams` and others in it, at the end `final`.
            save_freq: epochs.
            verbose: 0 prints nothing, 1 a line for an epoch, 2 also every log_freq batches.
            drop_last, shuffle, num_workers: of the loader of train_data, where it is a Dataset.
            callbacks: objects whose methods `on_train_begin(logs)`, `on_epoch_begin(epoch, logs)`, `on_train_batch_end(step, logs)`,
                `on_epoch_end(epoch, logs)` and `on_train_end(logs)` are called where they have them; `set_model(model)` first.
        """
        batches = self._batches(train_data, batch_size, shuffle, drop_last, num_workers)
        told = _Told(self, _list(callbacks))
        self.stop_training = False
        logs: dict[str, Any] = {}
        told.call("on_train_begin", logs)
        for epoch in range(epochs):
            told.call("on_epoch_begin", epoch, logs)
            logs = self._pass("train", batches, partial(self._tell, told, epoch, log_freq if verbose == 2 else 0))
            if eval_data is not None and (epoch + 1) % eval_freq == 0:
                found = self.evaluate(eval_data, batch_size, log_freq, 0, num_workers)
                logs |= {f"eval_{name}": value for name, value in found.items()}
            if verbose:
                print(f"epoch {epoch + 1}/{epochs}: {_text(logs)}")  # noqa: T201 (asked for)
            told.call("on_epoch_end", epoch, logs)
            if save_dir is not None and (epoch + 1) % save_freq == 0:
                self.save(str(Path(save_dir) / str(epoch)))
            if self.stop_training:
                break
        if save_dir is not None:
            self.save(str(Path(save_dir) / "final"))
        told.call("on_train_end", logs)

    @staticmethod
    def _tell(told: _Told, epoch: int, every: int, step: int, logs: dict[str, Any]) -> None:
        told.call("on_train_batch_end", step, logs)
        if every and (step + 1) % every == 0:
            print(f"epoch {epoch + 1}, batch {step + 1}: {_text(logs)}")  # noqa: T201 (asked for)

    def evaluate(
        self, eval_data: Any, batch_size: int = 1, log_freq: int = 10, verbose: int = 2, num_workers: int = 0, callbacks: Any = None
    ) -> dict[str, Any]:
        """Measure all batches; arguments of `fit`, with `on_eval_begin(logs)` and `on_eval_end(logs)` of the callbacks.

        Returns:
            `loss`, a list of the means over the batches, and the value of every metric by its name.
        """
        told = _Told(self, _list(callbacks))
        told.call("on_eval_begin", {})

        def tell(step: int, logs: dict[str, Any]) -> None:
            if verbose == 2 and (step + 1) % log_freq == 0:
                print(f"eval, batch {step + 1}: {_text(logs)}")  # noqa: T201 (asked for)

        logs = self._pass("eval", self._batches(eval_data, batch_size, False, False, num_workers), tell)
        if verbose:
            print(f"eval: {_text(logs)}")  # noqa: T201 (asked for)
        told.call("on_eval_end", logs)
        return logs

    def predict(
        self, test_data: Any, batch_size: int = 1, num_workers: int = 0, stack_outputs: bool = False, callbacks: Any = None
    ) -> list[Any]:
        """Return every output, as a list of batches or, with stack_outputs, one array; labels in a sample are left out."""
        told = _Told(self, _list(callbacks))
        told.call("on_predict_begin", {})
        made = [self.predict_batch(b[: len(self._inputs)]) for b in self._batches(test_data, batch_size, False, False, num_workers)()]
        columns = [list(column) for column in zip(*made, strict=True)]
        told.call("on_predict_end", {})
        return [np.concatenate(column) for column in columns] if stack_outputs else columns

    def _pass(self, mode: str, batches: Callable[[], Iterator[list[Any]]], tell: Callable[[int, dict[str, Any]], None]) -> dict[str, Any]:
        for metric in self._metrics:
            metric.reset()
        first, count = len(self._inputs), 0
        sums: Any = 0.0
        logs: dict[str, Any] = {}
        for i, batch in enumerate(batches()):
            found = self._measured(mode, batch[:first], batch[first:])
            sums, count = sums + np.array([float(v[0]) for v in (found[0] if self._metrics else found)]), i + 1
            logs = {"loss": (sums / count).tolist() if np.size(sums) else []}
            for metric in self._metrics:
                logs |= dict(zip(_list(metric.name()), _list(metric.accumulate()), strict=True))
            tell(i, logs)
        if not count:
            raise FluidValueError("there are no batches", hint="fewer samples than batch_size, with drop_last?")
        return logs

    def _batches(self, data: Any, size: int, shuffle: bool, drop_last: bool, workers: int) -> Callable[[], Iterator[list[Any]]]:
        if data is None:
            raise FluidValueError("there is no data", hint="give a paddle.io.Dataset, or a DataLoader")
        loader = DataLoader(data, None, None, True, None, size, shuffle, drop_last, None, workers) if isinstance(data, Dataset) else data
        rows = ("input", self._inputs), ("label", self._labels)
        feeds = [spec.name or f"{kind}_{i}" for kind, row in rows for i, spec in enumerate(row)]

        def batches() -> Iterator[list[Any]]:
            for batch in loader() if callable(loader) else loader:
                yield [batch[name] for name in feeds] if isinstance(batch, dict) else _list(batch)

        return batches

    # --- values --------------------------------------------------------------------------------------------------------

    def parameters(self, *args: Any, **given: Any) -> list[Any]:
        """Return the parameters of the network."""
        return list(self.network.parameters(*args, **given))

    def save(self, path: str, training: bool = True) -> None:
        """Save PATH.pdparams, and PATH.pdopt where there is a training program; otherwise an inference model, by the path.

        Args:
            path: without its ending.
            training: False saves PATH.pdmodel and PATH.pdiparams, for `static.load_inference_model`.
        """
        if not training:
            from pe_cli.paddle.static.inference import save_inference_model

            built = self._of("predict")
            save_inference_model(path, built.feeds, built.outputs, self._executor, built.program)
            return
        self._of("predict")
        files.save(self._of("train").program if self._optimizer is not None else self._of("predict").program, path)

    def load(self, path: str, skip_mismatch: bool = False, reset_optimizer: bool = False) -> None:
        """Load what `save` saved for training.

        Args:
            path: without its ending.
            skip_mismatch: leave parameters as they are that the file lacks or that have another shape there.
            reset_optimizer: leave what the optimizer keeps as it is.

        Raises:
            FluidValueError: there is no such file, or it does not fit; a ValueError.
        """
        program = self._of("train").program if self._optimizer is not None else self._of("predict").program
        state = files.load_program_state(path)
        wanted: list[Variable] = files.get_program_parameter(program)
        names = {v.name for v in wanted}
        if skip_mismatch:
            state = {k: a for k, a in state.items() if k not in names or program.global_block().var(k).shape == a.shape}
        elif names - set(state):
            raise FluidValueError(f"{path}.pdparams has no value for {', '.join(sorted(names - set(state)))}", hint="skip_mismatch=True")
        # The optimizer's values are in the file as well, and are no parameters: reset_optimizer leaves them out.
        files.set_program_state(program, {k: a for k, a in state.items() if k in names or not reset_optimizer})

    def summary(self, input_size: Any = None, dtype: Any = None) -> dict[str, int]:
        """Print the layers of the network; see `paddle.summary`. The sizes are those of the inputs, unless others are given."""
        return summary(self.network, self._inputs if input_size is None else input_size, dtype)


class _Told:
    """Callbacks of a loop."""

    def __init__(self, model: Model, callbacks: Sequence[Any]) -> None:
        self._callbacks = callbacks
        for each in callbacks:
            if hasattr(each, "set_model"):
                each.set_model(model)

    def call(self, method: str, *args: Any) -> None:
        """Call a method of all callbacks that have it."""
        for each in self._callbacks:
            if hasattr(each, method):
                getattr(each, method)(*args)


def _text(logs: dict[str, Any]) -> str:
    return ", ".join(f"{name} {np.round(value, 4).tolist()}" for name, value in logs.items())
