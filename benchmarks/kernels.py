"""Measure kernels against the machine's limits: products, convolutions, functions, ops that memory bounds, layers, and all ops of steps.

Run `python benchmarks/kernels.py [float32|float64] [gemm conv math memory layers ops]`; all of them by default, of float32. It prints the
best of several repetitions and their share of the measured peak, so that a busy machine shows as a low peak instead of a wrong conclusion.
The last three are `memory.py`, `layers.py` and `ops.py`, which take names of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from common import aligned, machine, seconds

from pe_cli.kernels.cpu.conv import conv_backward_data, conv_backward_data_scratch, conv_forward
from pe_cli.kernels.cpu.conv_filter_gradient import conv_backward_weight
from pe_cli.kernels.cpu.depthwise import depthwise_backward_data, depthwise_backward_weight, depthwise_forward
from pe_cli.kernels.cpu.gemm import gemm, gemm_scratch
from pe_cli.kernels.cpu.winograd import winograd_scratch
from pe_cli.kernels.language import Addr, Helper, Int, Kernel, Ptr, kernel, make_kernel, pointer_i64
from pe_cli.kernels.math import vector_math
from pe_cli.ops.nn.conv_kernels import backward_data_winograd, backward_weight_winograd, forward_winograd

#: Images, channels, side in pixels, output channels, side of the filter, stride, padding.
CONVOLUTIONS = {
    "lenet conv1": (64, 1, 28, 20, 5, 1, 0),
    "lenet conv2": (64, 20, 12, 50, 5, 1, 0),
    "resnet 16": (64, 16, 32, 16, 3, 1, 1),
    "resnet 32": (64, 32, 16, 32, 3, 1, 1),
    "resnet 64": (64, 64, 8, 64, 3, 1, 1),
    "16 -> 32 stride 2": (64, 16, 32, 32, 3, 2, 1),
    "32 -> 64 stride 2": (64, 32, 16, 64, 3, 2, 1),
    "64 at 56x56": (4, 64, 56, 64, 3, 1, 1),
    "3 -> 16 at 32x32": (64, 3, 32, 16, 3, 1, 1),
    "512 at 7x7": (8, 512, 7, 512, 3, 1, 1),
}
#: Those that Winograd's way does, likewise.
WINOGRAD = {
    "Winograd, 32": (64, 32, 16, 32),
    "Winograd, 64": (64, 64, 8, 64),
    "Winograd, 64 at 56x56": (4, 64, 56, 64),
    "Winograd, 128 at 28x28": (4, 128, 28, 128),
    "Winograd, 256 at 14x14": (4, 256, 14, 256),
}
#: Images, channels, side, stride of depthwise convolutions 3x3.
DEPTHWISE = {
    "depthwise 32 at 56x56": (2, 32, 56, 1),
    "depthwise 128 at 28x28": (2, 128, 28, 1),
    "depthwise 512 at 14x14": (2, 512, 14, 1),
    "depthwise 64, stride 2": (2, 64, 56, 2),
}
#: m, n, k.
PRODUCTS = [
    (64, 256, 784), (64, 256, 256), (256, 256, 784), (512, 512, 512), (1000, 1000, 1000),
    (64, 10, 256), (64, 1, 256), (8, 256, 256), (1, 256, 256),
    (256, 16, 256), (256, 17, 256), (256, 20, 256), (256, 50, 256), (256, 100, 256), (256, 257, 256),
]  # fmt: skip


@kernel
def product(  # noqa: PLR0913, PLR0917 - BLAS's arguments
    ta: Int,
    tb: Int,
    m: Int,
    n: Int,
    k: Int,
    a: Addr,
    lda: Int,
    b: Addr,
    ldb: Int,
    acc: Int,
    c: Addr,
    ldc: Int,
    scratch: Addr,
):
    gemm(ta, tb, m, n, k, a, lda, b, ldb, acc, c, ldc, scratch)


@kernel
def forward(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_forward(x, w, y, 0, n, geometry, a[5], scratch)


@kernel
def backward_data(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_backward_data(y, w, x, 0, n, 0, geometry, a[2], scratch)


@kernel
def backward_weight(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    conv_backward_weight(x, y, w, 0, n, 0, a[6], 0, geometry, scratch)


@kernel
def forward_depthwise(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    depthwise_forward(x, w, y, n, geometry)


@kernel
def backward_data_depthwise(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    depthwise_backward_data(y, w, x, n, geometry)


@kernel
def backward_weight_depthwise(x: Addr, w: Addr, y: Addr, n: Int, g: Addr, scratch: Addr):
    a = pointer_i64(g)
    geometry = (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14])
    depthwise_backward_weight(x, y, w, n, 0, a[6], 0, geometry)


def math_loop(name: str) -> Kernel:
    """Return a kernel that applies a function of vecmath."""
    function: Helper = getattr(vector_math, name)

    def apply(x: Ptr, y: Ptr, n: Int):
        for i in range(n):
            y[i] = function(x[i])

    return make_kernel(apply, f"{__name__}:{name}")


def products(dtype: str, top: float) -> None:
    """Print GEMM rates."""
    print(f"\n{'GEMM m x n x k':<22}{'NN':>16}{'TN':>16}{'NT':>16}   GFLOP/s (share of peak)")
    for m, n, k in PRODUCTS:
        line = f"{m} x {n} x {k}"
        cells = []
        for ta, tb in ((0, 0), (1, 0), (0, 1)):
            a, b = aligned((k, m) if ta else (m, k), dtype), aligned((n, k) if tb else (k, n), dtype)
            c, scratch = aligned((m, n), dtype), aligned((gemm_scratch(n, k),), dtype)
            t = seconds(product, dtype, ta, tb, m, n, k, a, a.shape[1], b, b.shape[1], 0, c, n, scratch)
            cells.append(rate(2 * m * n * k, t, top))
        print(f"{line:<22}{''.join(cells)}")


def rate(operations: int, t: float, top: float) -> str:
    """Format operations in t seconds."""
    return f"{operations / t / 1e9:9.1f} ({operations / t / 1e7 / top:3.0f}%)"


def convolutions(dtype: str, top: float) -> None:
    """Print convolution rates; operations on padding count, although they are not done."""
    print(f"\n{'convolution':<24}{'forward':>16}{'data':>16}{'weight':>16}   GFLOP/s (share of peak)")
    dense = {name: ((n, c, side, o, k, s, p), 1) for name, (n, c, side, o, k, s, p) in CONVOLUTIONS.items()}
    single = {name: ((n, c, side, c, 3, s, 1), c) for name, (n, c, side, s) in DEPTHWISE.items()}
    for name, ((n, c, side, o, k, s, p), groups) in (dense | single).items():
        out, per = (side + 2 * p - k) // s + 1, c // groups
        x, w, y = aligned((n, side, side, c), dtype), aligned((k, k, per, o), dtype), aligned((n, out, out, o), dtype)
        geometry = np.array([side, side, c, out, out, o, k, k, s, s, p, p, 1, 1, groups], np.int64)
        scratch = aligned((conv_backward_data_scratch(c, o, k, k, groups) + 1,), dtype)  # the largest of the three
        kernels = (forward, backward_data, backward_weight)
        if groups > 1:
            kernels = (forward_depthwise, backward_data_depthwise, backward_weight_depthwise)
        times = [seconds(kernel, dtype, x, w, y, n, geometry, scratch) for kernel in kernels]
        print(f"{name:<24}{''.join(rate(2 * y.size * k * k * per, t, top) for t in times)}")
    winograd(dtype, top)


def winograd(dtype: str, top: float) -> None:
    """Print rates of operations that a plain sum would take, with bringing filters into order."""
    for name, (n, c, side, o) in WINOGRAD.items():
        x, y, w = aligned((n, side, side, c), dtype), aligned((n, side, side, o), dtype), aligned((o, c, 3, 3), dtype)
        geometry = [side, side, c, side, side, o, 3, 3, 1, 1, 1, 1, 1, 1, 1]
        into_y, into_x = (np.array([*geometry, pixel], np.int64) for pixel in (o, c))
        scratch = aligned((winograd_scratch(c, o),), dtype)
        times = (
            seconds(forward_winograd, dtype, x, w, y, scratch, into_y, n),
            seconds(backward_data_winograd, dtype, y, w, x, scratch, scratch, into_x, n, 0),
            seconds(backward_weight_winograd, dtype, x, y, w, scratch, into_y, n, 0, 3),
        )
        print(f"{name:<24}{''.join(rate(2 * y.size * 9 * c, t, top) for t in times)}")


def functions(dtype: str, top: float) -> None:
    """Print the time of elementary functions."""
    del top
    print("\nfunction     ns an element")
    x, y = aligned((4096,), dtype) * 4 + 3, aligned((4096,), dtype)
    for name in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "softplus", "erf", "rsqrt"):
        print(f"{name:<12} {seconds(math_loop(name), dtype, x, y, 4096) / 4096 * 1e9:.2f}")


def bound_by_memory(dtype: str, top: float) -> None:
    """Print the ops that memory bounds."""
    import memory

    del dtype, top
    print()
    memory.main([])


def of_layers(dtype: str, top: float) -> None:
    """Print layers that are made of several ops: volumes, transposed convolutions, norms."""
    import layers

    del dtype, top
    print()
    layers.main([])


def of_steps(dtype: str, top: float) -> None:
    """Print the ops of whole steps."""
    import ops

    del dtype, top
    print()
    ops.main([])


PARTS: dict[str, Callable[[str, float], None]] = {
    "gemm": products, "conv": convolutions, "math": functions, "memory": bound_by_memory, "layers": of_layers,
    "ops": of_steps,
}  # fmt: skip


def main() -> None:
    """Print everything, or what the command line names."""
    known = {*PARTS, "float32", "float64"}
    if unknown := [word for word in sys.argv[1:] if word not in known]:
        sys.exit(f"{', '.join(unknown)}: expected names out of {', '.join(sorted(known))}")
    dtype = "float64" if "float64" in sys.argv else "float32"
    top = machine(dtype)
    for name, part in PARTS.items():
        if name in sys.argv or not set(PARTS) & set(sys.argv):
            part(dtype, top)


if __name__ == "__main__":
    main()
