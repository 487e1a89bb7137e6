"""vision: pictures of data sets, and what is done with them before they are fed."""

from __future__ import annotations

from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision import datasets, models, ops, transforms

globals().update({name: getattr(transforms, name) for name in transforms.__all__})
__all__ = ["datasets", "models", "ops", "transforms", *transforms.__all__]
__getattr__ = missing("paddle.vision", lambda: globals())
