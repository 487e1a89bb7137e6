"""MobileNets of versions 1 to 3 (Howard et al. 2017; Sandler et al. 2018; Howard et al. 2019)."""

from __future__ import annotations

from functools import partial
from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.vision.models.parts import Classifier, conv_norm, divisible, from_file

#: Of version 1: name of a block, channels that come in and go out, stride.
_SEPARABLE = (
    ("conv2_1", 32, 64, 1), ("conv2_2", 64, 128, 2), ("conv3_1", 128, 128, 1), ("conv3_2", 128, 256, 2), ("conv4_1", 256, 256, 1),
    ("conv4_2", 256, 512, 2), *((f"conv5_{i}", 512, 512, 1) for i in range(1, 6)), ("conv5_6", 512, 1024, 2), ("conv6", 1024, 1024, 1),
)  # fmt: skip


class _Separable(nn.Layer):
    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        self._depthwise_conv = conv_norm(ins, ins, 3, stride, 1, groups=ins)
        self._pointwise_conv = conv_norm(ins, outs, 1)

    def forward(self, x: Any) -> Any:
        return self._pointwise_conv(self._depthwise_conv(x))


class MobileNetV1(Classifier):
    """MobileNet: convolutions of each channel, then of all channels of a pixel.

    Args:
        scale: factor of the channels.
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.conv1 = conv_norm(3, int(32 * scale), 3, 2, 1)
        for name, ins, outs, stride in _SEPARABLE:
            self.add_sublayer(name, _Separable(int(ins * scale), int(outs * scale), stride))
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.fc = nn.Linear(int(1024 * scale), num_classes)

    def forward(self, x: Any) -> Any:
        """Append the network."""
        x = self.conv1(x)
        for name, *_ in _SEPARABLE:
            x = getattr(self, name)(x)
        return self.ended(x, "pool2d_avg", "fc")


class _Inverted(nn.Layer):
    """A block of version 2: more channels, a convolution of each, fewer channels."""

    def __init__(self, ins: int, outs: int, stride: int, more: int) -> None:
        super().__init__()
        wide = ins * more
        self._around = stride == 1 and ins == outs
        parts = [conv_norm(ins, wide, 1, act=nn.ReLU6)] if more != 1 else []
        parts.append(conv_norm(wide, wide, 3, stride, groups=wide, act=nn.ReLU6))
        self.conv = nn.Sequential(*parts, nn.Conv2D(wide, outs, 1, 1, 0, bias_attr=False), nn.BatchNorm2D(outs))

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self._around else self.conv(x)


#: Of version 2: factor of the channels inside of a block, channels, blocks, stride of the first.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class MobileNetV2(Classifier):
    """MobileNet of version 2: blocks with more channels inside than at their ends.

    Args:
        scale: factor of the channels.
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.
    """

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        channels, last = divisible(32 * scale), divisible(1280 * max(1.0, scale))
        made = [conv_norm(3, channels, 3, 2, act=nn.ReLU6)]
        for more, outs, count, stride in _STAGES:
            for i in range(count):
                made.append(_Inverted(channels, divisible(outs * scale), 1 if i else stride, more))
                channels = divisible(outs * scale)
        made.append(conv_norm(channels, last, 1, act=nn.ReLU6))
        self.features = nn.Sequential(*made)
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, num_classes))

    def forward(self, x: Any) -> Any:
        """Append the network."""
        return self.ended(self.features(x), "pool2d_avg", "classifier")


class _Squeeze(nn.Layer):
    """Weigh channels by what all pixels have of them (Hu et al. 2017)."""

    def __init__(self, channels: int, inside: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2D(1)
        self.fc1, self.fc2 = nn.Conv2D(channels, inside, 1), nn.Conv2D(inside, channels, 1)
        self.activation, self.scale_activation = nn.ReLU(), nn.Hardsigmoid()

    def forward(self, input: Any) -> Any:
        weights = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        return input * self.scale_activation(weights)


_norm = partial(nn.BatchNorm2D, epsilon=0.001, momentum=0.99)


class _Block(nn.Layer):
    """A block of version 3."""

    def __init__(self, ins: int, size: int, inside: int, outs: int, squeezes: bool, act: Any, stride: int) -> None:
        super().__init__()
        self._around, self._expands, self._squeezes = stride == 1 and ins == outs, ins != inside, squeezes
        if self._expands:
            self.expand_conv = conv_norm(ins, inside, 1, norm=_norm, act=act)
        self.bottleneck_conv = conv_norm(inside, inside, size, stride, groups=inside, norm=_norm, act=act)
        if squeezes:
            self.mid_se = _Squeeze(inside, divisible(inside // 4))
        self.linear_conv = conv_norm(inside, outs, 1, norm=_norm, act=None)

    def forward(self, x: Any) -> Any:
        out = self.bottleneck_conv(self.expand_conv(x) if self._expands else x)
        out = self.linear_conv(self.mid_se(out) if self._squeezes else out)
        return x + out if self._around else out


#: Of version 3: channels that come in, size of filters, channels inside, channels that go out, squeezes, activation, stride.
_SMALL = (
    (16, 3, 16, 16, 1, "relu", 2), (16, 3, 72, 24, 0, "relu", 2), (24, 3, 88, 24, 0, "relu", 1), (24, 5, 96, 40, 1, "swish", 2),
    (40, 5, 240, 40, 1, "swish", 1), (40, 5, 240, 40, 1, "swish", 1), (40, 5, 120, 48, 1, "swish", 1), (48, 5, 144, 48, 1, "swish", 1),
    (48, 5, 288, 96, 1, "swish", 2), (96, 5, 576, 96, 1, "swish", 1), (96, 5, 576, 96, 1, "swish", 1),
)  # fmt: skip
_LARGE = (
    (16, 3, 16, 16, 0, "relu", 1), (16, 3, 64, 24, 0, "relu", 2), (24, 3, 72, 24, 0, "relu", 1), (24, 5, 72, 40, 1, "relu", 2),
    (40, 5, 120, 40, 1, "relu", 1), (40, 5, 120, 40, 1, "relu", 1), (40, 3, 240, 80, 0, "swish", 2), (80, 3, 200, 80, 0, "swish", 1),
    (80, 3, 184, 80, 0, "swish", 1), (80, 3, 184, 80, 0, "swish", 1), (80, 3, 480, 112, 1, "swish", 1), (112, 3, 672, 112, 1, "swish", 1),
    (112, 5, 672, 160, 1, "swish", 2), (160, 5, 960, 160, 1, "swish", 1), (160, 5, 960, 160, 1, "swish", 1),
)  # fmt: skip


class _MobileNetV3(Classifier):
    def __init__(self, rows: Any, last: int, scale: float, num_classes: int, with_pool: bool) -> None:
        super().__init__(num_classes, with_pool)
        acts = {"relu": nn.ReLU, "swish": nn.Hardswish}
        self.conv = conv_norm(3, divisible(rows[0][0] * scale), 3, 2, 1, norm=_norm, act=nn.Hardswish)
        blocks = []
        for ins, size, inside, outs, squeezes, act, stride in rows:
            first, middle, second = (divisible(n * scale) for n in (ins, inside, outs))
            blocks.append(_Block(first, size, middle, second, bool(squeezes), acts[act], stride))
        self.blocks = nn.Sequential(*blocks)
        end = divisible(rows[-1][0] * scale)
        self.lastconv = conv_norm(end, 6 * end, 1, norm=_norm, act=nn.Hardswish)
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            hidden = divisible(last * scale)
            self.classifier = nn.Sequential(nn.Linear(6 * end, hidden), nn.Hardswish(), nn.Dropout(p=0.2), nn.Linear(hidden, num_classes))

    def forward(self, x: Any) -> Any:
        """Append the network."""
        return self.ended(self.lastconv(self.blocks(self.conv(x))), "avgpool", "classifier")


class MobileNetV3Small(_MobileNetV3):
    """The smaller MobileNet of version 3, whose blocks weigh their channels; arguments as of `MobileNetV2`."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(_SMALL, 1024, scale, num_classes, with_pool)


class MobileNetV3Large(_MobileNetV3):
    """The larger MobileNet of version 3, whose blocks weigh their channels; arguments as of `MobileNetV2`."""

    def __init__(self, scale: float = 1.0, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(_LARGE, 1280, scale, num_classes, with_pool)


def _function(name: str, build: Any) -> Any:
    def made(pretrained: bool = False, scale: float = 1.0, **kwargs: Any) -> Any:
        from_file(name, pretrained)
        return build(scale=scale, **kwargs)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"""Make a {build.__name__}.

    Args:
        pretrained: must be False: nothing is downloaded.
        scale: factor of the channels.
        kwargs: of the class.

    Raises:
        NotThereYet: pretrained is True.
    """
    return made


FUNCTIONS = {
    name: _function(name, build)
    for name, build in (
        ("mobilenet_v1", MobileNetV1), ("mobilenet_v2", MobileNetV2), ("mobilenet_v3_small", MobileNetV3Small),
        ("mobilenet_v3_large", MobileNetV3Large),
    )
}  # fmt: skip
