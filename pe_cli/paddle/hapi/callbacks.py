"""Callbacks of `Model.fit`, `evaluate` and `predict`: what hears of steps and epochs, and what may end a training."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.fed_rates import LRScheduler as Scheduler

Logs = dict[str, Any]


class Callback:
    """The base of callbacks; subclasses define the methods that they need, which all do nothing here.

    Logs have `loss`, a list, and every metric by its name, both of the steps so far, `step` and `batch_size`.

    Attributes:
        model: the `paddle.Model` that calls.
        params: `epochs`, `steps` of an epoch or None, `verbose`, `metrics` and `batch_size`.
    """

    def __init__(self) -> None:
        self.model: Any = None
        self.params: dict[str, Any] = {}

    def set_params(self, params: dict[str, Any]) -> None:
        """Take what is told at the begin."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Take the model."""
        self.model = model

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Hear of the begin of a training."""

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_eval_begin(self, logs: Logs | None = None) -> None:
        """Hear of the begin of an evaluation; logs are `steps` and `metrics`."""

    def on_eval_end(self, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Hear of the begin of a prediction; logs are `steps`."""

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Hear of the begin of an epoch, counted from 0."""

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_train_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Hear of the begin of a training step, counted from 0 in each epoch."""

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_eval_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Hear of the begin of a step of an evaluation."""

    def on_eval_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Hear of its end."""

    def on_predict_batch_begin(self, step: int, logs: Logs | None = None) -> None:
        """Hear of the begin of a step of a prediction."""

    def on_predict_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Hear of its end."""


class ProgBarLogger(Callback):
    """Print how far it is, a line each.

    Args:
        log_freq: steps between two lines.
        verbose: 0 prints nothing, 1 a line for an epoch, 2 also every log_freq steps.
    """

    def __init__(self, log_freq: int = 1, verbose: int = 2) -> None:
        super().__init__()
        self.log_freq, self.verbose, self._epoch = log_freq, verbose, 0

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Remember the number."""
        self._epoch = epoch

    def _say(self, what: str, step: int, logs: Logs | None) -> None:
        if self.verbose == 2 and (step + 1) % self.log_freq == 0:
            print(f"{what}, batch {step + 1}: {_text(logs)}")  # noqa: T201 (asked for)

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Print a line."""
        self._say(f"epoch {self._epoch + 1}", step, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Print a line."""
        if self.verbose:
            print(f"epoch {epoch + 1}/{self.params.get('epochs')}: {_text(logs)}")  # noqa: T201 (asked for)

    def on_eval_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Print a line."""
        self._say("eval", step, logs)

    def on_eval_end(self, logs: Logs | None = None) -> None:
        """Print a line."""
        if self.verbose:
            print(f"eval: {_text(logs)}")  # noqa: T201 (asked for)


class ModelCheckpoint(Callback):
    """Save the model at the end of epochs, and of the training as `final`.

    Args:
        save_freq: epochs between two saves; the first epoch is saved.
        save_dir: folder; None saves nothing.
    """

    def __init__(self, save_freq: int = 1, save_dir: Any = None) -> None:
        super().__init__()
        self.save_freq, self.save_dir = save_freq, save_dir

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Save the epoch's."""
        if self.save_dir is not None and epoch % self.save_freq == 0:
            self._save(str(epoch))

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Save the last one."""
        if self.save_dir is not None:
            self._save("final")

    def _save(self, name: str) -> None:
        path = Path(self.save_dir, name).absolute()
        print(f"save checkpoint at {path}")  # noqa: T201 (as the original says it)
        self.model.save(str(path))


class LRScheduler(Callback):
    """Take a step of the optimizer's scheduler; `fit` adds one that does so after every step.

    Args:
        by_step: after every step.
        by_epoch: after every epoch.

    Raises:
        FluidValueError: both; a ValueError.
    """

    def __init__(self, by_step: bool = True, by_epoch: bool = False) -> None:
        super().__init__()
        if by_step and by_epoch:
            raise FluidValueError("LRScheduler: by_step and by_epoch", hint="one of them, for example by_step=False, by_epoch=True")
        self.by_step, self.by_epoch = by_step, by_epoch

    def _step(self) -> None:
        scheduler = getattr(self.model._optimizer, "_learning_rate", None)
        if isinstance(scheduler, Scheduler):
            scheduler.step()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Take a step, by epochs."""
        if self.by_epoch:
            self._step()

    def on_train_batch_end(self, step: int, logs: Logs | None = None) -> None:
        """Take a step, by steps."""
        if self.by_step:
            self._step()


class _Watch(Callback):
    """What goes by a number of every evaluation.

    Args:
        monitor: its name in the logs.
        mode: whether it should become smaller or larger, min or max; auto: larger for names with acc.
        margin: by how much it has to, at least.
        best: where it begins; None: anything is better.
    """

    def __init__(self, monitor: str, mode: str, margin: float, best: float | None = None) -> None:
        super().__init__()
        if mode not in ("auto", "min", "max"):
            warnings.warn(f"{type(self).__name__}: mode {mode!r} is taken for auto", stacklevel=3)
            mode = "auto"
        self.monitor, self.margin, self._first = monitor, abs(margin), best
        self._larger = mode == "max" or (mode == "auto" and "acc" in monitor)
        self.best_value = self._begin()

    def _begin(self) -> float:
        return self._first if self._first is not None else -math.inf if self._larger else math.inf

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begin anew."""
        self.best_value = self._begin()

    def _current(self, logs: Mapping[str, Any] | None) -> float | None:
        """Return the number; None, with a warning, where there is none."""
        value = (logs or {}).get(self.monitor)
        value = value[0] if isinstance(value, (list, tuple)) else value
        if not isinstance(value, numbers.Number):
            warnings.warn(f"{type(self).__name__}: the evaluation has no '{self.monitor}', but loss and metrics' names", stacklevel=3)
            return None
        return float(value)  # type: ignore[arg-type]

    def _improves(self, value: float) -> bool:
        better = value > self.best_value + self.margin if self._larger else value < self.best_value - self.margin
        if better:
            self.best_value = value
        return better


class EarlyStopping(_Watch):
    """End a training whose evaluations do not become better.

    Args:
        monitor: `loss`, or the name of a metric.
        mode: min, max, or auto, which is max for names with acc.
        patience: evaluations in a row without improvement.
        verbose: 0 prints nothing.
        min_delta: what counts as an improvement.
        baseline: what the first one has to be better than.
        save_best_model: save the best one as `best_model` in the folder of `fit`.

    Attributes:
        save_dir: that folder, which `fit` sets.
    """

    def __init__(
        self,
        monitor: str = "loss",
        mode: str = "auto",
        patience: int = 0,
        verbose: int = 1,
        min_delta: float = 0,
        baseline: float | None = None,
        save_best_model: bool = True,
    ) -> None:
        super().__init__(monitor, mode, min_delta, baseline)
        self.patience, self.verbose, self.save_best_model = patience, verbose, save_best_model
        self.wait_epoch = self.stopped_epoch = 0
        self.save_dir: Any = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begin anew."""
        super().on_train_begin(logs)
        self.wait_epoch = 0

    def on_eval_end(self, logs: Logs | None = None) -> None:
        """Look at the number."""
        value = self._current(logs)
        if value is None:
            return
        if self._improves(value):
            self.wait_epoch = 0
            if self.save_best_model and self.save_dir is not None:
                self.model.save(str(Path(self.save_dir) / "best_model"))
        else:
            self.wait_epoch += 1
        if self.wait_epoch >= self.patience:
            self.model.stop_training = True
            if self.verbose:
                print(f"evaluation {self.stopped_epoch + 1}: stopped, {self.monitor} stays at {self.best_value:.6g}")  # noqa: T201 (asked for)
        self.stopped_epoch += 1


class ReduceLROnPlateau(_Watch):
    """Make the learning rate smaller where evaluations do not become better; for optimizers whose rate is a number.

    Args:
        monitor, mode, min_delta: see `EarlyStopping`.
        factor: below 1, of the rate.
        patience: evaluations in a row without improvement.
        verbose: 0 prints nothing.
        cooldown: evaluations after a change that are not counted.
        min_lr: below which it does not go.

    Raises:
        FluidValueError: factor is not below 1; a ValueError.
    """

    def __init__(
        self,
        monitor: str = "loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 1,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0,
    ) -> None:
        if factor >= 1:
            raise FluidValueError(f"ReduceLROnPlateau: factor is {factor}", hint="a number below 1")
        super().__init__(monitor, mode, min_delta)
        self.factor, self.patience, self.verbose, self.cooldown, self.min_lr = factor, patience, verbose, cooldown, min_lr
        self.wait = self.cooldown_counter = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Begin anew."""
        super().on_train_begin(logs)
        self.wait = self.cooldown_counter = 0

    def in_cooldown(self) -> bool:
        """Whether evaluations are not counted."""
        return self.cooldown_counter > 0

    def on_eval_end(self, logs: Logs | None = None) -> None:
        """Look at the number."""
        value, optimizer = self._current(logs), self.model._optimizer
        if value is None:
            return
        if not isinstance(getattr(optimizer, "_learning_rate", None), float):
            warnings.warn("ReduceLROnPlateau: the learning rate is no number that it could make smaller", stacklevel=2)
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._improves(value):
            self.wait = 0
        elif not self.in_cooldown():
            self.wait += 1
            rate = optimizer.get_lr()
            if self.wait >= self.patience and rate > self.min_lr:
                optimizer.set_lr(max(rate * self.factor, self.min_lr))
                self.wait, self.cooldown_counter = 0, self.cooldown
                if self.verbose:
                    print(f"learning rate: {optimizer.get_lr():.6g}, {self.monitor} stays at {self.best_value:.6g}")  # noqa: T201 (asked for)


class CallbackList:
    """Callbacks that are called one after the other; one need not have all methods."""

    def __init__(self, callbacks: Sequence[Any], model: Any, params: dict[str, Any]) -> None:
        self.callbacks = list(callbacks)
        for each in self.callbacks:
            for method, value in (("set_model", model), ("set_params", params)):
                if hasattr(each, method):
                    getattr(each, method)(value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.callbacks)

    def call(self, method: str, *args: Any) -> None:
        """Call a method of all callbacks that have it."""
        for each in self.callbacks:
            if hasattr(each, method):
                getattr(each, method)(*args)


def configured(given: Any, model: Any, params: dict[str, Any], log_freq: int, save_freq: int = 1, save_dir: Any = None) -> CallbackList:
    """Return what a loop calls: what the user gives, and what every loop has, unless one of the kind is given.

    Args:
        given: callbacks, a list of them or None.
        model: of the loop.
        params: see `Callback`.
        log_freq: steps between two lines.
        save_freq, save_dir: see `ModelCheckpoint`.
    """
    found = [] if given is None else list(given) if isinstance(given, (list, tuple)) else [given]
    if params["verbose"] and not any(isinstance(each, ProgBarLogger) for each in found):
        found = [ProgBarLogger(log_freq, params["verbose"]), *found]
    if not any(isinstance(each, ModelCheckpoint) for each in found):
        found.append(ModelCheckpoint(save_freq, save_dir))
    for each in found:
        if isinstance(each, EarlyStopping):
            each.save_dir = save_dir
    if not any(isinstance(each, LRScheduler) for each in found):
        found.append(LRScheduler())
    return CallbackList(found, model, params)


def _text(logs: Logs | None) -> str:
    shown = {name: value for name, value in (logs or {}).items() if name not in ("step", "batch_size")}
    return ", ".join(f"{name} {np.round(value, 4).tolist()}" for name, value in shown.items())


__all__ = ["Callback", "EarlyStopping", "LRScheduler", "ModelCheckpoint", "ProgBarLogger", "ReduceLROnPlateau"]
