"""optimizer of 2.x: the same classes as fluid's, with weight_decay and parameters as its arguments are called."""

from __future__ import annotations

from pe_cli.paddle.fluid import optimizer as fluid
from pe_cli.paddle.optimizer import lr  # noqa: F401 - a name of this package
from pe_cli.paddle.reference_names import missing

_NAMES = ("SGD", "Momentum", "Adagrad", "Adam", "AdamW", "Adamax", "Lamb", "RMSProp", "Adadelta")
globals().update({name: getattr(fluid, name) for name in _NAMES})
__getattr__ = missing("paddle.optimizer", lambda: globals())
