"""ShuffleNet of version 2 (Ma et al. 2018)."""

from __future__ import annotations

from typing import Any

from pe_cli.paddle import nn
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.vision.models.parts import Classifier, conv_norm, maker

#: Factor -> channels of the three stages, and of the last convolution.
SCALES = {
    0.25: (24, 48, 96, 512), 0.33: (32, 64, 128, 512), 0.5: (48, 96, 192, 1024), 1.0: (116, 232, 464, 1024), 1.5: (176, 352, 704, 1024),
    2.0: (224, 488, 976, 2048),
}  # fmt: skip


class _Half(nn.Layer):
    """A block that changes half of the channels."""

    def __init__(self, channels: int, act: Any) -> None:
        super().__init__()
        half = channels // 2
        self._conv_pw = conv_norm(half, half, 1, act=act)
        self._conv_dw = conv_norm(half, half, 3, groups=half, act=None)
        self._conv_linear = conv_norm(half, half, 1, act=act)

    def forward(self, inputs: Any) -> Any:
        kept, changed = call("split", inputs, 2, 1)
        changed = self._conv_linear(self._conv_dw(self._conv_pw(changed)))
        return nn.functional.channel_shuffle(call("concat", [kept, changed], 1), 2)


class _Down(nn.Layer):
    """A block that halves the image, in two ways beside each other."""

    def __init__(self, ins: int, outs: int, act: Any) -> None:
        super().__init__()
        half = outs // 2
        self._conv_dw_1 = conv_norm(ins, ins, 3, 2, groups=ins, act=None)
        self._conv_linear_1 = conv_norm(ins, half, 1, act=act)
        self._conv_pw_2 = conv_norm(ins, half, 1, act=act)
        self._conv_dw_2 = conv_norm(half, half, 3, 2, groups=half, act=None)
        self._conv_linear_2 = conv_norm(half, half, 1, act=act)

    def forward(self, inputs: Any) -> Any:
        first = self._conv_linear_1(self._conv_dw_1(inputs))
        second = self._conv_linear_2(self._conv_dw_2(self._conv_pw_2(inputs)))
        return nn.functional.channel_shuffle(call("concat", [first, second], 1), 2)


class ShuffleNetV2(Classifier):
    """ShuffleNet of version 2: blocks change half of the channels, which are dealt anew behind each.

    Args:
        scale: 0.25, 0.33, 0.5, 1.0, 1.5 or 2.0.
        act: relu, swish or None.
        num_classes: of the last layer; 0 leaves it out.
        with_pool: average over the pixels before it.

    Raises:
        FluidValueError: another scale or activation.
    """

    def __init__(self, scale: float = 1.0, act: str | None = "relu", num_classes: int = 1000, with_pool: bool = True) -> None:
        super().__init__(num_classes, with_pool)
        acts = {"relu": nn.ReLU, "swish": nn.Swish, None: None}
        if scale not in SCALES or act not in acts:
            raise FluidValueError(f"ShuffleNetV2: scale is {scale}, act {act!r}", hint=f"{', '.join(map(str, SCALES))}; relu or swish")
        *stages, last = SCALES[scale]
        made: Any = acts[act]
        self._conv1 = conv_norm(3, 24, 3, 2, 1, act=made)
        self._max_pool = nn.MaxPool2D(3, stride=2, padding=1)
        channels, self._blocks = 24, []
        for stage, (outs, count) in enumerate(zip(stages, (4, 8, 4), strict=True), 2):
            for i in range(count):
                block = _Half(outs, made) if i else _Down(channels, outs, made)
                self._blocks.append(self.add_sublayer(f"{stage}_{i + 1}", block))
            channels = outs
        self._last_conv = conv_norm(channels, last, 1, act=made)
        if with_pool:
            self._pool2d_avg = nn.AdaptiveAvgPool2D(1)
        if num_classes > 0:
            self._fc = nn.Linear(last, num_classes)

    def forward(self, inputs: Any) -> Any:
        """Append the network."""
        x = self._max_pool(self._conv1(inputs))
        for block in self._blocks:
            x = block(x)
        return self.ended(self._last_conv(x), "_pool2d_avg", "_fc")


FUNCTIONS = {
    **{
        name: maker(name, f"Make a ShuffleNetV2 with {scale} of the channels.", ShuffleNetV2, scale=scale)
        for scale in SCALES
        for name in [f"shufflenet_v2_x{str(scale).replace('.', '_')}"]
    },
    "shufflenet_v2_swish": maker("shufflenet_v2_swish", "Make a ShuffleNetV2 with swish.", ShuffleNetV2, scale=1.0, act="swish"),
}
