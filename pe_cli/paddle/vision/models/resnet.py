"""ResNet, ResNeXt and wide ResNets (He et al. 2015; Xie et al. 2016; Zagoruyko and Komodakis 2016)."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.vision.models.parts import Classifier, maker

#: Layers -> blocks of each stage.
DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class _Block(nn.Layer):
    """Convolutions beside a path around them.

    Args:
        inplanes: channels that come in.
        planes: channels of the stage.
        stride: of the convolution of 3 by 3 that may shrink the image.
        downsample: of the path around, or None.
        groups: of that convolution.
        base_width: channels of a group, of 64.
        dilation: must be 1.
        norm_layer: makes the norm of a number of channels.
    """

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: Any = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Any = None,
    ) -> None:
        super().__init__()
        if dilation != 1:
            raise FluidValueError(f"a block of ResNet has dilation {dilation}", hint="1")
        norm = norm_layer or nn.BatchNorm2D
        for i, (ins, outs, size, step, parts) in enumerate(self._sizes(inplanes, planes, stride, groups, base_width), 1):
            convolution = nn.Conv2D(ins, outs, size, step, size // 2, groups=parts, bias_attr=False)
            setattr(self, f"conv{i}", convolution)
            setattr(self, f"bn{i}", norm(outs))
            self._count = i
        self.relu = nn.ReLU()
        self.downsample = downsample

    def _sizes(self, inplanes: int, planes: int, stride: int, groups: int, base_width: int) -> list[tuple[int, ...]]:
        """Return inputs, outputs, filter, step and groups of each convolution.

        Raises:
            NotImplementedError: the subclass does not say them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _sizes: define the sizes of its convolutions")

    def forward(self, x: Any) -> Any:
        """Append the convolutions, and add the path around."""
        out = x
        for i in range(1, self._count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            out = self.relu(out) if i < self._count else out
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class BasicBlock(_Block):
    """Two convolutions of 3 by 3."""

    def _sizes(self, inplanes: int, planes: int, stride: int, groups: int, base_width: int) -> list[tuple[int, ...]]:
        return [(inplanes, planes, 3, stride, 1), (planes, planes, 3, 1, 1)]


class BottleneckBlock(_Block):
    """A convolution of 3 by 3 between two of 1 by 1."""

    expansion = 4

    def _sizes(self, inplanes: int, planes: int, stride: int, groups: int, base_width: int) -> list[tuple[int, ...]]:
        wide = int(planes * (base_width / 64.0)) * groups
        return [(inplanes, wide, 1, 1, 1), (wide, wide, 3, stride, groups), (wide, 4 * planes, 1, 1, 1)]


class ResNet(Classifier):
    """ResNet.

    Args:
        block: BasicBlock or BottleneckBlock.
        depth: layers: 18, 34, 50, 101 or 152.
        width: channels of a group, of 64.
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.
        groups: of the convolutions of 3 by 3.

    Raises:
        FluidValueError: another depth.
    """

    def __init__(
        self, block: Any, depth: int = 50, width: int = 64, num_classes: int = 1000, with_pool: bool = True, groups: int = 1
    ) -> None:
        super().__init__(num_classes, with_pool)
        if depth not in DEPTHS:
            raise FluidValueError(f"ResNet: depth is {depth}", hint=f"one of {', '.join(map(str, DEPTHS))}")
        self.conv1 = nn.Conv2D(3, 64, 7, stride=2, padding=3, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2D(3, stride=2, padding=1)
        channels = 64
        for stage, count in enumerate(DEPTHS[depth]):
            planes, blocks = 64 << stage, []
            for i in range(count):
                stride = 2 if stage and not i else 1
                around = None
                if stride != 1 or channels != planes * block.expansion:
                    outs = planes * block.expansion
                    shortcut = nn.Conv2D(channels, outs, 1, stride=stride, bias_attr=False)
                    around = nn.Sequential(shortcut, nn.BatchNorm2D(outs))
                blocks.append(block(channels, planes, stride, around, groups, width))
                channels = planes * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((1, 1))
        if num_classes > 0:
            self.fc = nn.Linear(channels, num_classes)

    def forward(self, x: Any) -> Any:
        """Append the network."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.ended(x, "avgpool", "fc")


def _resnet(name: str, says: str, depth: int, **sizes: Any) -> Any:
    return maker(name, says, ResNet, block=BasicBlock if depth < 50 else BottleneckBlock, depth=depth, **sizes)


FUNCTIONS = {
    **{f"resnet{n}": _resnet(f"resnet{n}", f"Make a ResNet of {n} layers.", n) for n in DEPTHS},
    **{
        name: _resnet(name, f"Make a ResNeXt of {n} layers with {groups} groups.", n, groups=groups, width=4)
        for n in (50, 101, 152)
        for groups in (32, 64)
        for name in [f"resnext{n}_{groups}x4d"]
    },
    **{
        name: _resnet(name, f"Make a ResNet of {n} layers whose blocks are twice as wide.", n, width=128)
        for n in (50, 101)
        for name in [f"wide_resnet{n}_2"]
    },
}
