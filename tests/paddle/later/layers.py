"""Functions of images and noise."""

from __future__ import annotations

from tests.paddle.later import Case, f

IMAGE, LAST = f(2, 4, 4, 6), f(2, 4, 6, 4)


def _unpooled(dims, **given):
    def make(p, x):
        functional = p.nn.functional
        found, places = getattr(functional, f"max_pool{dims}d")(x, 2, given.get("stride", 2), return_mask=True)
        return getattr(functional, f"max_unpool{dims}d")(found, places, 2, **given)

    return make


CASES = {
    "channel_shuffle": Case(lambda p, x: p.nn.functional.channel_shuffle(x, 2), {"x": IMAGE}),
    "ChannelShuffle": Case(lambda p, x: p.nn.ChannelShuffle(2, "NHWC")(x), {"x": LAST}),
    "pixel_unshuffle": Case(lambda p, x: p.nn.functional.pixel_unshuffle(x, 2), {"x": IMAGE}),
    "PixelUnshuffle": Case(lambda p, x: p.nn.PixelUnshuffle(2, "NHWC")(x), {"x": LAST}),
    "zeropad2d": Case(lambda p, x: p.nn.functional.zeropad2d(x, [1, 0, 2, 1]), {"x": IMAGE}),
    "ZeroPad2D": Case(lambda p, x: p.nn.ZeroPad2D(1, "NHWC")(x), {"x": LAST}),
    "fold": Case(lambda p, x: p.nn.functional.fold(x, [4, 5], 2), {"x": f(2, 8, 12)}),
    "fold with everything": Case(
        lambda p, x: p.nn.functional.fold(x, [6, 7], [2, 3], [2, 1], [1, 0, 1, 0], [2, 1]), {"x": f(2, 12, 15)}
    ),
    "Fold": Case(lambda p, x: p.nn.Fold([5, 5], [2, 2], 1, 1, 2)(x), {"x": f(2, 12, 9)}),
    "Unfold": Case(lambda p, x: p.nn.Unfold([2, 2], 2, 1, [1, 2])(x), {"x": IMAGE}),
    "Unflatten": Case(lambda p, x: p.nn.Unflatten(1, [2, -1])(x), {"x": IMAGE}),
    "max_unpool1d": Case(_unpooled(1), {"x": f(2, 3, 6)}),
    "max_unpool2d": Case(_unpooled(2), {"x": IMAGE}),
    "max_unpool2d of windows that overlap": Case(_unpooled(2, stride=1), {"x": IMAGE}),
    "max_unpool2d with a size": Case(_unpooled(2, output_size=[5, 7]), {"x": f(2, 3, 5, 7)}),
    "max_unpool3d": Case(_unpooled(3), {"x": f(1, 2, 4, 4, 4)}),
    "MaxUnPool2D": Case(
        lambda p, x: p.nn.MaxUnPool2D(2, 2)(*p.nn.MaxPool2D(2, 2, return_mask=True)(x)), {"x": IMAGE}
    ),
    "rrelu of a test": Case(lambda p, x: p.nn.functional.rrelu(x, 0.1, 0.3, training=False), {"x": IMAGE}),
    "rrelu of one slope": Case(lambda p, x: p.nn.RReLU(0.25, 0.25)(x), {"x": IMAGE}),
    "gumbel_softmax of logits that are far apart": Case(
        lambda p, x: p.nn.functional.gumbel_softmax(x, 0.5, True, 1), {"x": f(2, 3, 2) * 1000}, slopes=False
    ),
    "prelu of channels that are last": Case(lambda p, x, w: p.nn.functional.prelu(x, w, "NHWC"), {"x": LAST, "w": f(4, seed=1)}),
    "PReLU": Case(lambda p, x: p.nn.PReLU(6, 0.3, data_format="NHWC")(p.transpose(x, [0, 2, 1, 3])), {"x": f(2, 4, 4, 6)}, slopes=False),
}
