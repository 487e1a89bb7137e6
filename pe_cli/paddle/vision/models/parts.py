"""What the networks of vision.models are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.errors import NotThereYet
from pe_cli.paddle.fluid.param_attr import ParamAttr

Made = Callable[..., Any]


def conv_norm(
    ins: int,
    outs: int,
    size: Any = 3,
    stride: int = 1,
    padding: Any = None,
    groups: int = 1,
    norm: Made = nn.BatchNorm2D,
    act: Made | None = nn.ReLU,
) -> Any:
    """Return a convolution without bias, a norm and an activation in a row.

    Args:
        ins: channels that come in.
        outs: channels that go out.
        size: of the filters.
        stride: pixels between outputs.
        padding: on each side; by default what keeps the size with stride 1.
        groups: parts that channels are split into.
        norm: makes the norm of a number of channels.
        act: makes the activation; None for none.
    """
    around = padding if padding is not None else (size - 1) // 2 if isinstance(size, int) else [(s - 1) // 2 for s in size]
    made = [nn.Conv2D(ins, outs, size, stride, around, groups=groups, bias_attr=False), norm(outs)]
    return nn.Sequential(*made, *([act()] if act is not None else []))


def even(low: float) -> Any:
    """Return attributes of a parameter that is drawn evenly from [-low, low)."""
    return ParamAttr(initializer=nn.initializer.Uniform(-low, low))


def root(inputs: float) -> float:
    """Return 1 / sqrt(inputs), a usual limit of first values."""
    return 1.0 / math.sqrt(inputs)


def divisible(channels: float, by: int = 8) -> int:
    """Return the nearest number of channels that is divisible by another, at least that one and not below 90% of what is wanted."""
    made = max(by, int(channels + by / 2) // by * by)
    return made + by if made < 0.9 * channels else made


def from_file(name: str, pretrained: bool) -> None:
    """Refuse values that somebody else has trained.

    Raises:
        NotThereYet: pretrained is True.
    """
    if pretrained:
        raise NotThereYet(
            f"{name}: pretrained=True is not there: nothing is downloaded",
            hint="leave it out, and load values from a file that you have: paddle.static.load, or pe import of an inference model",
        )


def maker(name: str, says: str, build: Made, **fixed: Any) -> Made:
    """Return the function that makes a network.

    Args:
        name: of the function.
        says: first sentence of its doc.
        build: the class, or what makes an object of it.
        fixed: arguments that the function has decided.
    """

    def made(pretrained: bool = False, **kwargs: Any) -> Any:
        from_file(name, pretrained)
        return build(**{**kwargs, **fixed})

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"""{says}

    Args:
        pretrained: must be False: nothing is downloaded.
        kwargs: of the class.

    Raises:
        NotThereYet: pretrained is True.
    """
    return made


class Classifier(nn.Layer):
    """A network that ends with an average over the pixels and a layer of classes, each of which may be left out.

    Args:
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.
    """

    def __init__(self, num_classes: int, with_pool: bool = True) -> None:
        super().__init__()
        self.num_classes, self.with_pool = num_classes, with_pool

    def ended(self, x: Any, pool: str, last: str) -> Any:
        """Return the scores of classes of an image of features, by the sublayers of two names."""
        x = getattr(self, pool)(x) if self.with_pool else x
        return getattr(self, last)(nn.Flatten()(x)) if self.num_classes > 0 else x
