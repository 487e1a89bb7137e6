"""The bins that a starter writes for numbers: edges at quantiles of the training rows, in the unit that the model sees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.column import Context, discover
from pe_cli.session.starters.files import Settings
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.table_columns import Inspected, numbers_of

#: Bins of a column at most.
MOST_BINS = 24
#: Training rows for each bin of all columns: where rows are few, as many as least squares needs (the one-in-ten rule, Harrell 2015,
#: section 4.4); else fewer, as weights that shrink and training that ends early do with them, and coarse bins hide what lies near together.
BIN_ROWS = {True: 10, False: 3}
FEW_ROWS = 300
#: Rows, evenly apart, that quantiles are taken of at most.
LOOKED_AT = 100_000


def edges_of(inspected: Inspected, settings: Settings) -> list[list[float]]:
    """Return the edges of the bins of every number that the rows feed; none for one of two values, or where rows are few."""
    columns = [column for one in numbers_of(inspected) for column in _values(inspected, one, settings)]
    several = [len(np.unique(column)) > 2 for column in columns]
    bins = min(MOST_BINS, inspected.rows // (BIN_ROWS[inspected.rows < FEW_ROWS] * max(1, sum(several))))
    return [_edges(column, bins) if bins >= 2 else [] for column in columns]


def _values(inspected: Inspected, one: Guess, settings: Settings) -> NDArray[np.float64]:
    """Return what a column feeds for training rows, [numbers, rows]."""
    kind = discover()[str(one.type)]
    options = kind.options.model_validate(dict(one.options))
    field = kind.encode(options, inspected.states[one.name], Context(inspected.table, one.name, base=settings.base))
    rows = inspected.parts["train"][:: -(-inspected.rows // LOOKED_AT)]
    return np.asarray(field.take(rows)[0], np.float64).reshape(len(rows), -1).T


def _edges(values: NDArray[np.float64], bins: int) -> list[float]:
    """Return quantiles, or the values themselves where there are few; none where one bin would be all."""
    distinct = np.unique(values)
    edges = distinct if len(distinct) <= bins + 1 else np.quantile(values, np.linspace(0, 1, bins + 1))
    # Adding 0.0 turns -0.0, which the file would show with its sign, into 0.0.
    rounded = np.unique([float(f"{round(edge, 5):.3g}") + 0.0 for edge in edges.tolist()])
    found: list[float] = rounded.tolist()
    return found if len(found) > 2 else []
