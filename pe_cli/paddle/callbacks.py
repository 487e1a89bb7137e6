"""callbacks: what `paddle.Model` calls while it trains, evaluates and predicts."""

from __future__ import annotations

from pe_cli.paddle.hapi.callbacks import (
    Callback,
    EarlyStopping,
    LRScheduler,
    ModelCheckpoint,
    ProgBarLogger,
    ReduceLROnPlateau,
)
from pe_cli.paddle.reference_names import missing

__all__ = ["Callback", "EarlyStopping", "LRScheduler", "ModelCheckpoint", "ProgBarLogger", "ReduceLROnPlateau"]
__getattr__ = missing("paddle.callbacks", lambda: globals())
