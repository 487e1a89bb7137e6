"""optimizer of 2.x: fluid's, with weight_decay and parameters as its arguments are called."""

from __future__ import annotations

from pe_cli.optim.optimizer import Optimizer  # noqa: F401 - the base of all, for scripts that ask what something is
from pe_cli.paddle.optimizer import lr  # noqa: F401 - a name of this package
from pe_cli.paddle.optimizer.optimizers import later_optimizers
from pe_cli.paddle.reference_names import missing

globals().update(later_optimizers())
__getattr__ = missing("paddle.optimizer", lambda: globals())
