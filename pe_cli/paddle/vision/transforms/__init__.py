"""vision.transforms: changes of pictures, which are arrays [height, width, channels] or those of Pillow."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision.transforms import color, fixed, functional, random_kinds, warps
from pe_cli.paddle.vision.transforms.base import BaseTransform, Compose


def _collected() -> dict[str, Any]:
    return {name: getattr(module, name) for module in (functional, fixed, random_kinds, color, warps) for name in module.__all__}


globals().update(_collected())
__all__ = ["BaseTransform", "Compose", *_collected()]
__getattr__ = missing("paddle.vision.transforms", lambda: globals())
