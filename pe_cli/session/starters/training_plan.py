"""Batch size, epochs and learning rate of a starter, by the number of training rows."""

from __future__ import annotations

import math

from pe_cli.core.lazy_dataclass import dataclass

#: Steps in all that training may take, before early stopping.
STEPS = 4000


@dataclass(frozen=True)
class Plan:
    """Numbers of a starter.

    Args:
        batch_size: samples of a step.
        epochs: passes at most.
        learning_rate: of Adam.
        patience: evaluations without improvement after which training ends.
        hidden: width of hidden layers.
        dropout: share of their numbers that a step leaves out.
        weight_decay: part of a parameter that goes each step, times the learning rate; 0 for Adam, which has none.
        ema: part of the parameters' average that stays each step; None for no average.
    """

    batch_size: int
    epochs: int
    learning_rate: float
    patience: int
    hidden: int
    dropout: float
    weight_decay: float = 0.0
    ema: float | None = None


def plan(rows: int, steps: int = STEPS) -> Plan:
    """Return batch size, epochs and learning rate for a number of training rows.

    Larger data gets larger batches, which cores compute faster, wider layers, and fewer passes.

    Args:
        rows: training rows.
        steps: in all, at most, before epochs are bounded to 5 to 100.
    """
    batch = next(
        size for most, size in ((1_000, 32), (10_000, 64), (50_000, 128), (200_000, 256), (2**62, 512)) if rows < most
    )
    epochs = min(100, max(5, math.ceil(steps * batch / rows)))
    hidden = next(size for most, size in ((500, 32), (20_000, 64), (2**62, 128)) if rows < most)
    rate = 0.002 if batch <= 128 else 0.003
    return Plan(batch, epochs, rate, max(3, min(10, epochs // 5)), hidden, 0.2 if rows < 20_000 else 0.1)


def table_plan(rows: int, steps: int = STEPS) -> Plan:
    """Return the numbers of a model for a table, whose learning rate falls to 0 over the epochs.

    Args:
        rows: training rows.
        steps: in all, at most, before epochs are bounded to 10 to 200.

    Source:
        Holzmüller, Grinsztajn, Steinwart 2024, Better by Default (RealMLP): decay apart from the gradient, a rate that falls to 0.
    """
    found = plan(rows)
    hidden = next(size for most, size in ((250, 32), (1_000, 64), (2**62, 128)) if rows < most)
    epochs = min(200, max(10, math.ceil(steps * found.batch_size / rows)))
    return Plan(found.batch_size, epochs, 0.002, max(5, epochs // 4), hidden, 0.2, weight_decay=0.02, ema=0.99)


def shares(rows: int) -> dict[str, float]:
    """Return the shares of the rows for evaluation and test; small data gets no test split: its rows are worth more in training."""
    if rows < 4_000:
        return {"eval": 0.2}
    return {"eval": 0.1, "test": 0.1} if rows < 200_000 else {"eval": 0.05, "test": 0.05}


def embedding_width(indices: int) -> int:
    """Return the width of an embedding: 1.6 * indices ** 0.56, at most 50.

    Source:
        The rule of thumb of fastai's tabular learner (fastai.tabular.model.emb_sz_rule, where the bound is 600).

    >>> embedding_width(4), embedding_width(20), embedding_width(100_000)
    (3, 9, 50)
    """
    return min(50, round(float(1.6 * indices**0.56)))
