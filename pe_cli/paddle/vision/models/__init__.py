"""vision.models: networks of 2.x, without trained values."""

from __future__ import annotations

from pe_cli.paddle.reference_names import missing
from pe_cli.paddle.vision.models import densenet, inception, mobilenet, plain, resnet, shufflenet

_CLASSES = (
    plain.AlexNet, densenet.DenseNet, inception.GoogLeNet, inception.InceptionV3, plain.LeNet, mobilenet.MobileNetV1, mobilenet.MobileNetV2,
    mobilenet.MobileNetV3Large, mobilenet.MobileNetV3Small, resnet.ResNet, shufflenet.ShuffleNetV2, densenet.SqueezeNet, plain.VGG,
)  # fmt: skip
globals().update({one.__name__: one for one in _CLASSES})
for _module in (densenet, inception, mobilenet, plain, resnet, shufflenet):
    globals().update(_module.FUNCTIONS)
__all__ = [name for name in globals() if not name.startswith("_") and callable(globals()[name]) and name != "missing"]
__getattr__ = missing("paddle.vision.models", lambda: globals())
