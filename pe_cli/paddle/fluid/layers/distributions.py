"""Distributions over variables: samples, entropies, logarithms of densities, divergences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid.framework import ensure_defaults
from pe_cli.paddle.fluid.layers import tensor
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import less_than, logical_and
from pe_cli.program.ir import Variable


def _variables(what: str, *given: Any) -> tuple[list[Variable], bool]:
    """Return parameters as variables, constants in one shape, and whether all are plain numbers.

    Raises:
        FluidTypeError: something that is no number, list, array or variable; a TypeError.
    """
    ensure_defaults()
    known = [v for v in given if not isinstance(v, Variable)]
    for v in known:
        if not isinstance(v, (int, float, list, tuple, np.ndarray, np.generic)) or isinstance(v, bool):
            raise FluidTypeError(f"{what} takes numbers, lists, arrays and variables, got {v!r:.60}")
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(v)) for v in known)) if known else []
    kind = next((v.dtype for v in given if isinstance(v, Variable)), None)
    if kind is None:
        # Python's floats count as float32, the default of fluid; only arrays that are all float64 stay so.
        kind = "float64" if all(getattr(v, "dtype", None) == "float64" for v in known) else "float32"
    constants = iter(arrays)
    made = [v if isinstance(v, Variable) else tensor.assign(np.ascontiguousarray(next(constants), kind)) for v in given]
    return made, all(isinstance(v, (int, float)) for v in given)


def _add(x: Variable, y: Variable) -> Any:
    return call("elementwise_add", x, y)


def _sub(x: Variable, y: Variable) -> Any:
    return call("elementwise_sub", x, y)


def _mul(x: Variable, y: Variable) -> Any:
    return call("elementwise_mul", x, y)


def _div(x: Variable, y: Variable) -> Any:
    return call("elementwise_div", x, y)


def _drawn(kind: str, shape: Sequence[int], like: Variable, seed: int, **limits: float) -> Any:
    """Draw numbers of a shape, followed by a variable's own, whose first size may be unknown.

    Raises:
        FluidValueError: another size of the variable is not known; a ValueError.
    """
    sizes = [int(s) for s in shape]
    if -1 not in like.shape:
        return call(kind, [*sizes, *like.shape], dtype=like.dtype, seed=seed, **limits)
    if -1 in like.shape[1:]:
        raise FluidValueError(f"sample: only the first size of a parameter may be unknown, got {like}")
    rest, count = list(like.shape[1:]), math.prod(sizes)
    # Such an op draws with the open batch axis in front: it is moved behind the axes that were asked for.
    made = getattr(tensor, f"{kind}_batch_size_like")(like, [-1, count, *rest], seed=seed, dtype=like.dtype, **limits)
    made = call("transpose", made, [1, 0, *range(2, len(rest) + 2)])
    return call("reshape", made, [*sizes, -1, *rest])


class Distribution:
    """What distributions have in common."""

    def sample(self, shape: Sequence[int], seed: int = 0) -> Any:
        """Draw numbers at every step: of that shape, followed by the parameters'.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample: define it")

    def entropy(self) -> Any:
        """Return the entropy, in nats.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no entropy: define it")

    def log_prob(self, value: Variable) -> Any:
        """Return the logarithm of the density, or of the probability, of values.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no log_prob: define it")

    def kl_divergence(self, other: Any) -> Any:
        """Return the divergence of another distribution of the kind from this one, in nats.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no kl_divergence: define it")

    def probs(self, value: Variable) -> Any:
        """Return the density, or the probability, of values."""
        return call("exp", self.log_prob(value))

    def _same(self, other: Any) -> None:
        if type(other) is not type(self):
            kind = type(self).__name__
            raise FluidTypeError(f"the divergence of a {kind} from {other!r:.60} has no closed form", hint=f"give a {kind}")


class Normal(Distribution):
    """The normal distribution.

    Args:
        loc: mean; a number, list, array or variable.
        scale: standard deviation, above 0.
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        (self.loc, self.scale), self._plain = _variables("Normal", loc, scale)

    def sample(self, shape: Sequence[int], seed: int = 0) -> Any:
        """Draw numbers at every step: of that shape, followed by the parameters', which plain numbers have not."""
        drawn = _drawn("gaussian_random", shape, _add(self.loc, self.scale), seed, mean=0.0, std=1.0)
        made = _add(_mul(drawn, self.scale), self.loc)
        return call("reshape", made, list(shape)) if self._plain else made

    def entropy(self) -> Any:
        """Return 1/2 + ln(2 pi) / 2 + ln scale, in nats."""
        # The mean gives its shape alone: there is one entropy for each element that mean and scale broadcast to.
        spread = _add(call("scale", self.loc, 0.0), self.scale)
        return call("scale", call("log", spread), 1.0, 0.5 + 0.5 * math.log(2 * math.pi))

    def log_prob(self, value: Variable) -> Any:
        """Return the logarithm of the density of values."""
        away = call("square", _div(_sub(value, self.loc), self.scale))
        return _sub(call("scale", away, -0.5, -0.5 * math.log(2 * math.pi)), call("log", self.scale))

    def kl_divergence(self, other: Normal) -> Any:
        """Return the divergence of another normal distribution from this one, in nats."""
        self._same(other)
        ratio = call("square", _div(self.scale, other.scale))
        away = call("square", _div(_sub(self.loc, other.loc), other.scale))
        return call("scale", _sub(_add(ratio, away), call("log", ratio)), 0.5, -0.5)


class Uniform(Distribution):
    """The uniform distribution over an interval.

    Args:
        low: lower end; a number, list, array or variable.
        high: upper end, above low.
    """

    def __init__(self, low: Any, high: Any) -> None:
        (self.low, self.high), self._plain = _variables("Uniform", low, high)

    def sample(self, shape: Sequence[int], seed: int = 0) -> Any:
        """Draw numbers at every step: of that shape, followed by the parameters', which plain numbers have not."""
        drawn = _drawn("uniform_random", shape, _add(self.low, self.high), seed, min=0.0, max=1.0)
        made = _add(_mul(drawn, _sub(self.high, self.low)), self.low)
        return call("reshape", made, list(shape)) if self._plain else made

    def entropy(self) -> Any:
        """Return ln(high - low), in nats."""
        return call("log", _sub(self.high, self.low))

    def log_prob(self, value: Variable) -> Any:
        """Return -ln(high - low) inside of the interval, minus infinity outside."""
        # The ends are outside, as in the original; ln 1 = 0 inside, ln 0 = minus infinity outside.
        inside = logical_and(less_than(self.low, value), less_than(value, self.high))
        return _sub(call("log", call("cast", inside, value.dtype)), self.entropy())


class Categorical(Distribution):
    """A choice among classes.

    Args:
        logits: logarithms of the classes' weights, along the last axis.
    """

    def __init__(self, logits: Any) -> None:
        (self.logits,), _ = _variables("Categorical", logits)

    def _logs(self) -> Any:
        return call("log_softmax", self.logits)

    def sample(self, shape: Sequence[int], seed: int = 0) -> Any:
        """Draw numbers of classes at every step, int64: of that shape, followed by the logits' without the last axis."""
        # Above 0, whose logarithm is infinite: -ln of a uniform number is an exponential waiting time.
        drawn = _drawn("uniform_random", shape, self.logits, seed, min=1e-20, max=1.0)
        waiting = call("log", call("scale", call("log", drawn), -1.0))  # the least ln(waiting time) - logit wins
        return call("argmax", call("scale", _sub(waiting, self.logits), -1.0), -1)

    def entropy(self) -> Any:
        """Return the entropy, in nats, with an axis of size 1 in place of the classes."""
        logs = self._logs()
        # From log_softmax: where a probability underflows to 0, its logarithm is still finite, and their product is 0.
        return call("scale", call("reduce_sum", _mul(call("exp", logs), logs), -1, True), -1.0)

    def kl_divergence(self, other: Categorical) -> Any:
        """Return the divergence of another choice among as many classes from this one, in nats."""
        self._same(other)
        logs = self._logs()
        return call("reduce_sum", _mul(call("exp", logs), _sub(logs, other._logs())), -1, True)

    def log_prob(self, value: Variable) -> Any:
        """Return the logarithms of the probabilities of classes: [n] integers of logits [classes], or [batch, n] of [batch, classes]."""
        logs = self._logs()
        return call("gather", logs, value) if len(self.logits.shape) == 1 else call("index_sample", logs, value)


class MultivariateNormalDiag(Distribution):
    """A normal distribution of several numbers that are independent of each other.

    Args:
        loc: means, [size].
        scale: covariances, [size, size], of which the diagonal counts.

    Raises:
        FluidValueError: loc and scale do not fit together.
    """

    def __init__(self, loc: Any, scale: Any) -> None:
        ensure_defaults()
        self.loc, self.scale = (_variables("MultivariateNormalDiag", v)[0][0] for v in (loc, scale))
        size = self.loc.shape[-1]
        if self.scale.shape != (size, size):
            what = f"MultivariateNormalDiag: scale is {self.scale}, loc is {self.loc}"
            raise FluidValueError(what, hint="scale is [size, size], with the variances on its diagonal")
        self._size = size

    def _variances(self) -> Any:
        # What is beside the diagonal is multiplied by 0, so that it has no gradient either.
        one = call("eye", self._size, dtype=self.scale.dtype)
        return call("reduce_sum", _mul(self.scale, one), 1)

    def sample(self, shape: Sequence[int], seed: int = 0) -> Any:
        """Draw vectors at every step: of that shape, followed by [size]."""
        drawn = _drawn("gaussian_random", shape, self.loc, seed, mean=0.0, std=1.0)
        return _add(_mul(drawn, call("sqrt", self._variances())), self.loc)

    def entropy(self) -> Any:
        """Return (size (1 + ln 2 pi) + ln det scale) / 2, in nats, as [1]."""
        total = call("reduce_sum", call("log", self._variances()))
        return call("scale", total, 0.5, 0.5 * self._size * (1 + math.log(2 * math.pi)))

    def log_prob(self, value: Variable) -> Any:
        """Return the logarithm of the density of vectors along the last axis."""
        away = call("reduce_sum", _div(call("square", _sub(value, self.loc)), self._variances()), -1)
        return _sub(call("scale", away, -0.5), self._log_scale())

    def _log_scale(self) -> Any:
        """Return the logarithm of what the density is divided by: (size ln 2 pi + ln det scale) / 2."""
        total = call("reduce_sum", call("log", self._variances()))
        return call("scale", total, 0.5, 0.5 * self._size * math.log(2 * math.pi))

    def kl_divergence(self, other: MultivariateNormalDiag) -> Any:
        """Return the divergence of another such distribution from this one, in nats, as [1]."""
        self._same(other)
        mine, its = self._variances(), other._variances()
        away = call("square", _sub(other.loc, self.loc))
        terms = _sub(_div(_add(mine, away), its), call("log", _div(mine, its)))
        return call("scale", call("reduce_sum", terms), 0.5, -0.5 * self._size)


__all__ = ["Categorical", "MultivariateNormalDiag", "Normal", "Uniform"]
