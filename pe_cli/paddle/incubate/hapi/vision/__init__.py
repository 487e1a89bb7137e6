"""Transforms of pictures, where 1.8 has them."""

from __future__ import annotations

from pe_cli.paddle.reference_names import elsewhere, places

_SOURCE = "pe_cli.paddle.vision.transforms"
globals().update(places(__name__, {"transforms": _SOURCE}))
__getattr__ = elsewhere(_SOURCE)
