"""Networks of layers in a row: LeNet, AlexNet and VGG (LeCun et al. 1998; Krizhevsky 2014; Simonyan and Zisserman 2014)."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.vision.models.parts import Classifier, even, from_file, maker, root


class LeNet(Classifier):
    """LeNet, of gray images of 28 by 28 pixels.

    Args:
        num_classes: of the last layer; 0 leaves out all behind the convolutions.
    """

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__(num_classes, False)
        first = [nn.Conv2D(1, 6, 3, stride=1, padding=1), nn.ReLU(), nn.MaxPool2D(2, 2)]
        second = [nn.Conv2D(6, 16, 5, stride=1, padding=0), nn.ReLU(), nn.MaxPool2D(2, 2)]
        self.features = nn.Sequential(*first, *second)
        if num_classes > 0:
            self.fc = nn.Sequential(nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes))

    def forward(self, inputs: Any) -> Any:
        """Append the network."""
        return self.ended(self.features(inputs), "", "fc")


class _ConvPool(nn.Layer):
    def __init__(self, ins: int, outs: int, size: int, stride: int, padding: int, limit: float) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self._conv = nn.Conv2D(ins, outs, size, stride, padding, weight_attr=even(limit), bias_attr=even(limit))
        self._pool = nn.MaxPool2D(3, stride=2, padding=0)

    def forward(self, inputs: Any) -> Any:
        return self._pool(self.relu(self._conv(inputs)))


class AlexNet(Classifier):
    """AlexNet, of images of 224 by 224 pixels.

    Args:
        num_classes: of the last layer; 0 leaves out all behind the convolutions.
    """

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__(num_classes, False)
        self.relu = nn.ReLU()
        self._conv1 = _ConvPool(3, 64, 11, 4, 2, root(3 * 11 * 11))
        self._conv2 = _ConvPool(64, 192, 5, 1, 2, root(64 * 5 * 5))
        for i, ins, outs in ((3, 192, 384), (4, 384, 256)):
            limit = root(ins * 3 * 3)
            setattr(self, f"_conv{i}", nn.Conv2D(ins, outs, 3, stride=1, padding=1, weight_attr=even(limit), bias_attr=even(limit)))
        self._conv5 = _ConvPool(256, 256, 3, 1, 1, root(256 * 3 * 3))
        if num_classes > 0:
            limit = root(256 * 6 * 6)
            for i, ins, outs in ((6, 256 * 6 * 6, 4096), (7, 4096, 4096), (8, 4096, num_classes)):
                if i < 8:
                    setattr(self, f"_drop{i - 5}", nn.Dropout(p=0.5, mode="downscale_in_infer"))
                setattr(self, f"_fc{i}", nn.Linear(ins, outs, weight_attr=even(limit), bias_attr=even(limit)))

    def forward(self, inputs: Any) -> Any:
        """Append the network."""
        x = self._conv2(self._conv1(inputs))
        x = self._conv5(self.relu(self._conv4(self.relu(self._conv3(x)))))
        if self.num_classes > 0:
            x = self.relu(self._fc6(self._drop1(nn.Flatten()(x))))
            x = self._fc8(self.relu(self._fc7(self._drop2(x))))
        return x


#: Layers -> convolutions of each stage.
DEPTHS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}


class VGG(Classifier):
    """VGG, of images of 224 by 224 pixels.

    Args:
        features: the convolutions, a layer.
        num_classes: of the last layer; 0 leaves out all behind the convolutions.
        with_pool: average to 7 by 7 pixels before it.
    """

    def __init__(self, features: Any, num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        self.features = features
        if with_pool:
            self.avgpool = nn.AdaptiveAvgPool2D((7, 7))
        if num_classes > 0:
            hidden = [v for ins in (512 * 7 * 7, 4096) for v in (nn.Linear(ins, 4096), nn.ReLU(), nn.Dropout())]
            self.classifier = nn.Sequential(*hidden, nn.Linear(4096, num_classes))

    def forward(self, x: Any) -> Any:
        """Append the network."""
        return self.ended(self.features(x), "avgpool", "classifier")


def _features(depth: int, batch_norm: bool) -> Any:
    made, channels = [], 3
    for stage, count in enumerate(DEPTHS[depth]):
        outs = min(64 << stage, 512)
        for _ in range(count):
            made += [nn.Conv2D(channels, outs, 3, padding=1), *([nn.BatchNorm2D(outs)] if batch_norm else []), nn.ReLU()]
            channels = outs
        made.append(nn.MaxPool2D(2, stride=2))
    return nn.Sequential(*made)


def _vgg(depth: int) -> Any:
    name = f"vgg{depth}"

    def made(pretrained: bool = False, batch_norm: bool = False, **kwargs: Any) -> Any:
        from_file(name, pretrained)
        return VGG(_features(depth, batch_norm), **kwargs)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"""Make a VGG of {depth} layers.

    Args:
        pretrained: must be False: nothing is downloaded.
        batch_norm: a norm behind each convolution.
        kwargs: of the class.

    Raises:
        NotThereYet: pretrained is True.
    """
    return made


FUNCTIONS = {"alexnet": maker("alexnet", "Make an AlexNet.", AlexNet), **{f"vgg{n}": _vgg(n) for n in DEPTHS}}
