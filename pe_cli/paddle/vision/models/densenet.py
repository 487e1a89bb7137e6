"""Networks that put channels beside each other: DenseNet and SqueezeNet (Huang et al. 2016; Iandola et al. 2016)."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.vision.models.parts import Classifier, even, maker, root

#: Layers -> channels of the first convolution, channels that a layer adds, layers of each block.
DEPTHS = {
    121: (64, 32, (6, 12, 24, 16)), 161: (96, 48, (6, 12, 36, 24)), 169: (64, 32, (6, 12, 32, 32)), 201: (64, 32, (6, 12, 48, 32)),
    264: (64, 32, (6, 12, 64, 48)),
}  # fmt: skip


class _NormConv(nn.Layer):
    def __init__(self, ins: int, outs: int, size: int) -> None:
        super().__init__()
        self._batch_norm = nn.BatchNorm(ins, act="relu")
        self._conv = nn.Conv2D(ins, outs, size, padding=size // 2, bias_attr=False)

    def forward(self, input: Any) -> Any:
        return self._conv(self._batch_norm(input))


class _DenseLayer(nn.Layer):
    def __init__(self, ins: int, more: int, bn_size: int, dropout: float) -> None:
        super().__init__()
        self.bn_ac_func1 = _NormConv(ins, bn_size * more, 1)
        self.bn_ac_func2 = _NormConv(bn_size * more, more, 3)
        self.dropout_func = nn.Dropout(p=dropout, mode="downscale_in_infer") if dropout else None

    def forward(self, input: Any) -> Any:
        made = self.bn_ac_func2(self.bn_ac_func1(input))
        return call("concat", [input, made if self.dropout_func is None else self.dropout_func(made)], 1)


class _Named(nn.Layer):
    """Layers one after the other, by their names."""

    def forward(self, x: Any) -> Any:
        for layer in self.children():
            x = layer(x)
        return x


class _ConvNorm(nn.Layer):
    def __init__(self, outs: int) -> None:
        super().__init__()
        self._conv = nn.Conv2D(3, outs, 7, stride=2, padding=3, bias_attr=False)
        self._batch_norm = nn.BatchNorm(outs, act="relu")

    def forward(self, input: Any) -> Any:
        return self._batch_norm(self._conv(input))


class DenseNet(Classifier):
    """DenseNet: each layer of a block sees all before it.

    Args:
        layers: 121, 161, 169, 201 or 264.
        bn_size: channels inside of a layer, of those that it adds.
        dropout: chance that a number that a layer adds is set to zero.
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.

    Raises:
        FluidValueError: another number of layers.
    """

    def __init__(
        self, layers: int = 121, bn_size: int = 4, dropout: float = 0.0, num_classes: int = 1000, with_pool: bool = True
    ) -> None:
        super().__init__(num_classes, with_pool)
        if layers not in DEPTHS:
            raise FluidValueError(f"DenseNet: layers is {layers}", hint=f"one of {', '.join(map(str, DEPTHS))}")
        channels, more, blocks = DEPTHS[layers]
        self.conv1_func = _ConvNorm(channels)
        self.pool2d_max = nn.MaxPool2D(3, stride=2, padding=1)
        self._order = []
        for i, count in enumerate(blocks, 2):
            block = _Named()
            for k in range(count):
                block.add_sublayer(f"conv{i}_{k + 1}", _DenseLayer(channels + k * more, more, bn_size, dropout))
            self._order.append(self.add_sublayer(f"db_conv_{i}", block))
            channels += count * more
            if i < len(blocks) + 1:
                between = _Named()
                between.conv_ac_func = _NormConv(channels, channels // 2, 1)
                between.pool2d_avg = nn.AvgPool2D(2, stride=2, padding=0)
                self._order.append(self.add_sublayer(f"tr_conv{i}_blk", between))
                channels //= 2
        self.batch_norm = nn.BatchNorm(channels, act="relu")
        if with_pool:
            self.pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.out = nn.Linear(channels, num_classes, weight_attr=even(root(channels)))

    def forward(self, input: Any) -> Any:
        """Append the network."""
        x = self.pool2d_max(self.conv1_func(input))
        for block in self._order:
            x = block(x)
        return self.ended(self.batch_norm(x), "pool2d_avg", "out")


class _FireConv(nn.Layer):
    def __init__(self, ins: int, outs: int, size: int) -> None:
        super().__init__()
        self._conv = nn.Conv2D(ins, outs, size, padding=size // 2)

    def forward(self, x: Any) -> Any:
        return call("relu", self._conv(x))


class _Fire(nn.Layer):
    def __init__(self, ins: int, inside: int, outs: int) -> None:
        super().__init__()
        self._conv = _FireConv(ins, inside, 1)
        self._conv_path1, self._conv_path2 = _FireConv(inside, outs, 1), _FireConv(inside, outs, 3)

    def forward(self, inputs: Any) -> Any:
        x = self._conv(inputs)
        return call("concat", [self._conv_path1(x), self._conv_path2(x)], 1)


#: Version -> channels, size and padding of the first convolution, and the blocks behind which a pool stands.
_VERSIONS = {"1.0": (96, 7, 0, (3, 7)), "1.1": (64, 3, 1, (2, 4))}


class SqueezeNet(Classifier):
    """SqueezeNet: few channels, then more of two sizes of filters beside each other.

    Args:
        version: 1.0 or 1.1.
        num_classes: of the last convolution; 0 leaves it out.
        with_pool: average over the pixels.

    Raises:
        FluidValueError: another version.
    """

    def __init__(self, version: str, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        if version not in _VERSIONS:
            raise FluidValueError(f"SqueezeNet: version is {version!r}", hint=" or ".join(_VERSIONS))
        channels, size, padding, self._pooled = _VERSIONS[version]
        self._conv = nn.Conv2D(3, channels, size, stride=2, padding=padding)
        self._pool = nn.MaxPool2D(3, stride=2, padding=0)
        for i in range(8):
            inside = 16 * (i // 2 + 1)
            setattr(self, f"_conv{i + 1}", _Fire(channels, inside, 4 * inside))
            channels = 8 * inside
        self._drop = nn.Dropout(p=0.5, mode="downscale_in_infer")
        if num_classes > 0:
            self._conv9 = nn.Conv2D(channels, num_classes, 1)
        self._avg_pool = nn.AdaptiveAvgPool2D(1)

    def forward(self, inputs: Any) -> Any:
        """Append the network."""
        x = self._pool(call("relu", self._conv(inputs)))
        for i in range(1, 9):
            x = getattr(self, f"_conv{i}")(x)
            x = self._pool(x) if i in self._pooled else x
        if self._conv9 is not None:
            x = self._conv9(self._drop(x))
        return call("squeeze", self._avg_pool(call("relu", x)), [2, 3]) if self.with_pool else x


FUNCTIONS = {
    **{f"densenet{n}": maker(f"densenet{n}", f"Make a DenseNet of {n} layers.", DenseNet, layers=n) for n in DEPTHS},
    **{
        name: maker(name, f"Make a SqueezeNet of version {version}.", SqueezeNet, version=version)
        for version in _VERSIONS
        for name in [f"squeezenet{version.replace('.', '_')}"]
    },
}
