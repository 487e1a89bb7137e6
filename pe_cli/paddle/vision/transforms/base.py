"""What transforms have in common, and chains of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from pe_cli.paddle.errors import FluidTypeError


class Compose:
    """Call transforms one after the other.

    Args:
        transforms: functions of one sample.
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = list(transforms)

    def __call__(self, data: Any) -> Any:
        for each in self.transforms:
            data = each(data)
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.transforms))})"


class BaseTransform:
    """A transform of samples; subclasses say what becomes of each part of them.

    A sample is a picture, or a tuple whose parts `keys` names: a part called NAME goes through `_apply_NAME`, what is drawn for a
    sample is `self.params`, and parts behind those that are named stay as they are.

    Args:
        keys: names of the parts; default: `("image",)`. A part that is called None stays as it is.

    Raises:
        FluidTypeError: keys is no list or tuple of names.
    """

    def __init__(self, keys: Sequence[str | None] | None = None) -> None:
        if keys is not None and (isinstance(keys, str) or not isinstance(keys, Sequence)):
            raise FluidTypeError(f"keys must be a list or tuple of names, got {keys!r}", hint='("image",)')
        self.keys = ("image",) if keys is None else tuple(keys)
        self._drawn: dict[int, Any] = {}

    @property
    def params(self) -> Any:
        """What was drawn for the sample that this thread changes."""
        # A DataLoader's workers are threads that share the transform: a picture and its mask must not get different draws.
        return self._drawn.get(threading.get_ident())

    @params.setter
    def params(self, value: Any) -> None:
        self._drawn[threading.get_ident()] = value

    def _get_params(self, inputs: tuple[Any, ...]) -> Any:
        """Draw what holds for all parts of a sample."""
        return None

    def _apply_image(self, img: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say what becomes of a picture: define _apply_image(self, img)")

    def __call__(self, inputs: Any) -> Any:
        whole = isinstance(inputs, tuple)
        parts = inputs if whole else (inputs,)
        self.params = self._get_params(parts)
        made = list(parts)
        for i, key in enumerate(self.keys[: len(parts)]):
            if key is not None:
                made[i] = self._named(key)(parts[i])
        return tuple(made) if whole else made[0]

    def _named(self, key: str) -> Callable[[Any], Any]:
        """Return the method of a part.

        Raises:
            FluidTypeError: there is none; a TypeError.
        """
        found: Callable[[Any], Any] | None = getattr(self, f"_apply_{key}", None)
        if found is None:
            raise FluidTypeError(f"{type(self).__name__} does not change '{key}'", hint=f"name it None, or define _apply_{key}")
        return found

    def image_of(self, inputs: tuple[Any, ...]) -> Any:
        """Return the picture of a sample."""
        return inputs[self.keys.index("image")]
