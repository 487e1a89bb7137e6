"""Networks of branches beside each other: GoogLeNet and Inception of version 3 (Szegedy et al. 2014, 2015)."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.vision.models.parts import Classifier, conv_norm, even, maker, root


class _Conv(nn.Layer):
    def __init__(self, ins: int, outs: int, size: int, stride: int = 1) -> None:
        super().__init__()
        self._conv = nn.Conv2D(ins, outs, size, stride, size // 2, bias_attr=False)

    def forward(self, inputs: Any) -> Any:
        return self._conv(inputs)


class _Branches(nn.Layer):
    """Filters of 1, 3 and 5 pixels and a pool."""

    def __init__(self, ins: int, one: int, three_in: int, three: int, five_in: int, five: int, pooled: int) -> None:
        super().__init__()
        self._conv1 = _Conv(ins, one, 1)
        self._conv3r, self._conv3 = _Conv(ins, three_in, 1), _Conv(three_in, three, 3)
        self._conv5r, self._conv5 = _Conv(ins, five_in, 1), _Conv(five_in, five, 5)
        self._pool = nn.MaxPool2D(3, stride=1, padding=1)
        self._convprj = _Conv(ins, pooled, 1)

    def forward(self, inputs: Any) -> Any:
        branches = [self._conv1(inputs), self._conv3(self._conv3r(inputs)), self._conv5(self._conv5r(inputs))]
        return call("relu", call("concat", [*branches, self._convprj(self._pool(inputs))], 1))


#: Name of a block -> channels that come in, and of its branches; `None` is a pool before the next.
_BLOCKS = {
    "3a": (192, 64, 96, 128, 16, 32, 32), "3b": (256, 128, 128, 192, 32, 96, 64), "4a": (480, 192, 96, 208, 16, 48, 64),
    "4b": (512, 160, 112, 224, 24, 64, 64), "4c": (512, 128, 128, 256, 24, 64, 64), "4d": (512, 112, 144, 288, 32, 64, 64),
    "4e": (528, 256, 160, 320, 32, 128, 128), "5a": (832, 256, 160, 320, 32, 128, 128), "5b": (832, 384, 192, 384, 48, 128, 128),
}  # fmt: skip


def _limit(channels: int) -> Any:
    return even((3.0 / channels) ** 0.5)


class GoogLeNet(Classifier):
    """GoogLeNet, of images of 224 by 224 pixels: scores of its end, and of two branches before.

    Args:
        num_classes: of the last layers; 0 leaves them out.
        with_pool: average over the pixels before them.
    """

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self._conv = _Conv(3, 64, 7, 2)
        self._pool = nn.MaxPool2D(3, stride=2)
        self._conv_1, self._conv_2 = _Conv(64, 64, 1), _Conv(64, 192, 3)
        for name, sizes in _BLOCKS.items():
            setattr(self, f"_ince{name}", _Branches(*sizes))
        if with_pool:
            self._pool_5 = nn.AdaptiveAvgPool2D(1)
            self._pool_o1, self._pool_o2 = nn.AvgPool2D(5, stride=3), nn.AvgPool2D(5, stride=3)
        if num_classes > 0:
            self._drop = nn.Dropout(p=0.4, mode="downscale_in_infer")
            self._fc_out = nn.Linear(1024, num_classes, weight_attr=_limit(1024))
            for i, ins in ((1, 512), (2, 528)):
                setattr(self, f"_conv_o{i}", _Conv(ins, 128, 1))
                setattr(self, f"_fc_o{i}", nn.Linear(1152, 1024, weight_attr=_limit(2048)))
                setattr(self, f"_drop_o{i}", nn.Dropout(p=0.7, mode="downscale_in_infer"))
                setattr(self, f"_out{i}", nn.Linear(1024, num_classes, weight_attr=_limit(1024)))

    def forward(self, inputs: Any) -> list[Any]:
        """Append the network."""
        x = self._pool(self._conv_2(self._conv_1(self._pool(self._conv(inputs)))))
        made: dict[str, Any] = {}
        for name in _BLOCKS:
            # A pool stands before each stage but the first.
            x = made[name] = getattr(self, f"_ince{name}")(self._pool(x) if name in ("4a", "5a") else x)
        out, first, second = made["5b"], made["4a"], made["4d"]
        if self.with_pool:
            out, first, second = self._pool_5(out), self._pool_o1(first), self._pool_o2(second)
        if self.num_classes > 0:
            out = self._fc_out(call("squeeze", self._drop(out), [2, 3]))
            # The second branch has no relu, as in the original.
            first = self._out1(self._drop_o1(call("relu", self._fc_o1(nn.Flatten()(self._conv_o1(first))))))
            second = self._out2(self._drop_o2(self._fc_o2(nn.Flatten()(self._conv_o2(second)))))
        return [out, first, second]


class _Rows(nn.Layer):
    """Branches beside each other, each of which is a row of layers; a pair in a row stands beside each other, too.

    Args:
        rows: of each branch: a name, and what makes a layer; or a list of such pairs.
    """

    def __init__(self, *rows: Any) -> None:
        super().__init__()
        self._rows: list[list[list[str]]] = []
        for row in rows:
            names = []
            for step in row:
                beside = step if isinstance(step, list) else [step]
                for name, layer in beside:
                    self.add_sublayer(name, layer)
                names.append([name for name, _ in beside])
            self._rows.append(names)

    def forward(self, x: Any) -> Any:
        found = []
        for row in self._rows:
            out = x
            for names in row:
                parts = [getattr(self, name)(out) for name in names]
                out = parts[0] if len(parts) == 1 else call("concat", parts, 1)
            found.append(out)
        return call("concat", found, 1)


_WIDE, _TALL = (1, 7), (7, 1)


def _row(name: str, ins: int, *steps: Any) -> list[tuple[str, Any]]:
    """Return convolutions in a row: of each channels, size and stride."""
    made = []
    for i, (outs, size, *stride) in enumerate(steps, 1):
        layer = conv_norm(ins, outs, size, stride[0], 0) if stride else conv_norm(ins, outs, size)
        made.append((f"{name}_{i}" if len(steps) > 1 else name, layer))
        ins = outs
    return made


def _averaged(ins: int, outs: int) -> list[tuple[str, Any]]:
    pool = nn.AvgPool2D(3, stride=1, padding=1, exclusive=False)
    return [("branch_pool", pool), ("branch_pool_conv", conv_norm(ins, outs, 1))]


def _largest() -> list[tuple[str, Any]]:
    return [("branch_pool", nn.MaxPool2D(3, stride=2))]


# Branches are made in the order of the original, in which parameters have their numbers.
def _small(ins: int, pooled: int) -> Any:
    return [
        _row("branch1x1", ins, (64, 1)),
        _row("branch5x5", ins, (48, 1), (64, 5)),
        _row("branch3x3dbl", ins, (64, 1), (96, 3), (96, 3)),
        _averaged(ins, pooled),
    ]


def _factored(ins: int, inside: int) -> Any:
    return [
        _row("branch1x1", ins, (192, 1)),
        _row("branch7x7", ins, (inside, 1), (inside, _WIDE), (192, _TALL)),
        _row("branch7x7dbl", ins, (inside, 1), (inside, _TALL), (inside, _WIDE), (inside, _TALL), (192, _WIDE)),
        _averaged(ins, 192),
    ]


def _shrunk(ins: int) -> Any:
    return [_row("branch3x3", ins, (384, 3, 2)), _row("branch3x3dbl", ins, (64, 1), (96, 3), (96, 3, 2)), _largest()]


def _shrunk_again(ins: int) -> Any:
    first = _row("branch3x3", ins, (192, 1), (320, 3, 2))
    return [first, _row("branch7x7x3", ins, (192, 1), (192, _WIDE), (192, _TALL), (192, 3, 2)), _largest()]


def _both_ways(name: str) -> list[tuple[str, Any]]:
    return [(f"{name}a", conv_norm(384, 384, (1, 3))), (f"{name}b", conv_norm(384, 384, (3, 1)))]


def _last(ins: int) -> Any:
    one = _row("branch1x1", ins, (320, 1))
    three = [("branch3x3_1", conv_norm(ins, 384, 1)), _both_ways("branch3x3_2")]
    doubled = [*_row("branch3x3dbl", ins, (448, 1), (384, 3)), _both_ways("branch3x3dbl_3")]
    return [one, three, doubled, _averaged(ins, 192)]


class _Stem(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.conv_1a_3x3, self.conv_2a_3x3 = conv_norm(3, 32, 3, 2, 0), conv_norm(32, 32, 3, 1, 0)
        self.conv_2b_3x3 = conv_norm(32, 64, 3)
        self.max_pool = nn.MaxPool2D(3, stride=2, padding=0)
        self.conv_3b_1x1, self.conv_4a_3x3 = conv_norm(64, 80, 1), conv_norm(80, 192, 3, 1, 0)

    def forward(self, x: Any) -> Any:
        x = self.max_pool(self.conv_2b_3x3(self.conv_2a_3x3(self.conv_1a_3x3(x))))
        return self.max_pool(self.conv_4a_3x3(self.conv_3b_1x1(x)))


class InceptionV3(Classifier):
    """Inception of version 3, of images of 299 by 299 pixels.

    Args:
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.
    """

    def __init__(self, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.inception_stem = _Stem()
        self.inception_block_list = nn.LayerList()
        blocks: list[Any] = [(_small, 192, 32), (_small, 256, 64), (_small, 288, 64), (_shrunk, 288)]
        blocks += [(_factored, 768, inside) for inside in (128, 160, 160, 192)]
        for make, *sizes in [*blocks, (_shrunk_again, 768), (_last, 1280), (_last, 2048)]:
            self.inception_block_list.append(_Rows(*make(*sizes)))
        if with_pool:
            self.avg_pool = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self.dropout = nn.Dropout(p=0.2, mode="downscale_in_infer")
            self.fc = nn.Linear(2048, num_classes, weight_attr=even(root(2048)))

    def forward(self, x: Any) -> Any:
        """Append the network."""
        x = self.inception_stem(x)
        for block in self.inception_block_list:
            x = block(x)
        x = self.avg_pool(x) if self.with_pool else x
        return self.fc(self.dropout(call("reshape", x, [-1, 2048]))) if self.num_classes > 0 else x


FUNCTIONS = {
    "googlenet": maker("googlenet", "Make a GoogLeNet.", GoogLeNet),
    "inception_v3": maker("inception_v3", "Make an Inception of version 3.", InceptionV3),
}
