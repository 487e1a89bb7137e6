"""Transforms of signals, as products with matrices that are not trained, and windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pe_cli.session.importing.onnx.fold import bounded, fold
from pe_cli.session.importing.onnx.forms.elementwise import floats
from pe_cli.session.importing.onnx.forms.matrices import last_axis
from pe_cli.session.importing.onnx.forms.places import taken
from pe_cli.session.importing.onnx.node import Node, form
from pe_cli.session.importing.onnx.values import Array, NeedsConstant, Unimportable, Value


def fourier(size: int, length: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """Return the matrix [size parts, outputs] of a transform: real and imaginary parts lie beside each other.

    Args:
        size: of the axis.
        length: that it is cut to, or filled up with zeros to.
        parts: 1 for real numbers, 2 for complex ones.
        inverse: from frequencies to the signal.
        onesided: of the frequencies that a real signal has, the first half.
    """
    # The transform is linear: row by row, its matrix is the transform of the unit vectors. A complex input counts as two real ones, and an
    # i as input turns each output by 90 degrees, (re, im) to (-im, re).
    if inverse and onesided:
        # irfft is linear over the real numbers only: unit vectors and i times them have matrices of their own.
        spectrum = np.zeros((size, parts, size), complex)
        spectrum[np.arange(size), 0, np.arange(size)] = 1
        if parts == 2:
            spectrum[np.arange(size), 1, np.arange(size)] = 1j
        return np.asarray(np.fft.irfft(spectrum, length, -1)).reshape(size * parts, length)
    unit = np.eye(size)
    made = np.fft.ifft(unit, length, -1) if inverse else np.fft.fft(unit, length, -1)
    made = made[:, : length // 2 + 1] if onesided else made
    rows = [np.stack([made.real, made.imag], -1)]
    if parts == 2:
        rows.append(np.stack([-made.imag, made.real], -1))
    return np.stack(rows, 1).reshape(size * parts, -1)


def transformed(node: Node, x: Value, axis: int, length: int, inverse: bool, onesided: bool) -> Value:
    """Transform an axis of real numbers [..., 1] or complex ones [..., 2].

    Raises:
        Unimportable: sizes are not known, or too large.
    """
    size, parts, last = x.dims[axis], x.dims[-1], len(x.dims) - 1
    if not isinstance(size, int) or parts not in (1, 2) or axis == last:
        raise Unimportable("the size that it goes along is not known, or its last axis has neither real nor complex numbers")
    bounded([size, parts, length, 2], "its matrix")
    perm = [*(a for a in range(last) if a != axis), axis, last]
    turned = x if perm == list(range(last + 1)) else node.mid("transpose", "turned", x=x, perm=perm, dims=[x.dims[a] for a in perm])
    matrix = fourier(size, length, int(parts), inverse, onesided)
    ends = 1 if inverse and onesided else 2
    flat = node.reshaped(turned, [*turned.dims[:-2], size * int(parts)], "flat")
    made = last_axis(node, flat, matrix, "frequencies", None)
    apart = node.reshaped(made, [*turned.dims[:-2], matrix.shape[1] // ends, ends], "apart")
    back = [perm.index(a) for a in range(last + 1)]
    return node.out("transpose", x=apart, perm=back, dims=[apart.dims[a] for a in back])


@form("DFT")
def dft(node: Node) -> Value:
    x, new = floats(node), node.opset >= 20
    given = node.const(2, "the axis").reshape(-1)[0] if new and node.has(2) else node.attr("axis", -2 if new else 1)
    axis = int(given) % len(x.dims)
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    size = x.dims[axis]
    if node.has(1):
        length = int(node.const(1, "the length").reshape(-1)[0])
    elif isinstance(size, int):
        length = 2 * (size - 1) if inverse and onesided else size
    else:
        raise Unimportable("the size that it goes along is not known")
    return transformed(node, x, axis, length, inverse, onesided)


@form("STFT")
def stft(node: Node) -> Value:
    x, step = floats(node), int(node.const(1, "the step").reshape(-1)[0])
    window = node.const(2, "the window") if node.has(2) else None
    length = int(node.const(3, "the length").reshape(-1)[0]) if node.has(3) else 0 if window is None else window.size
    size = x.dims[1]
    if not isinstance(size, int) or step < 1 or not 1 <= length <= size or (len(x.dims) == 3 and x.dims[2] != 1):
        raise Unimportable("the size of the signal is not known, it is complex, or its frames do not fit")
    frames = 1 + (size - length) // step
    bounded([frames, length], "its frames")
    flat = node.reshaped(x, [x.dims[0], size], "signal")
    places = (np.arange(frames)[:, None] * step + np.arange(length)).astype(np.int64)
    index = node.emitter.variable(Value("int64", constant=places.reshape(-1)), f"{node.key}_places")
    cut = taken(node, flat, index, 1, [x.dims[0], places.size], "frames")
    rows = node.reshaped(cut, [x.dims[0], frames, length], "rows")
    matrix = fourier(length, length, 1, False, bool(node.attr("onesided", 1)))
    # The window multiplies samples before the transform, so it can be multiplied into the rows of the matrix once.
    if window is not None:
        matrix = matrix * window.reshape(-1, 1)
    made = last_axis(node, rows, matrix, "frequencies")
    return node.reshaped(made, [x.dims[0], frames, matrix.shape[1] // 2, 2])


#: Elements that a column of a matrix counts for, which takes time of its own.
_COLUMN = 16
#: Cosines of a window, by their multiples.
_WINDOWS = {"HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46), "BlackmanWindow": (0.42, -0.5, 0.08)}


@fold(*_WINDOWS)
def window(node: Node, given: Sequence[Array]) -> Array:
    from pe_cli.session.importing.onnx.file import element_type

    size = int(given[0].reshape(-1)[0])
    bounded([size], "a window")
    _, dtype = element_type(int(node.attr("output_datatype", 1)))
    around = 2 * np.pi * np.arange(size) / max(1, size if node.attr("periodic", 1) else size - 1)
    return np.asarray(sum(part * np.cos(k * around) for k, part in enumerate(_WINDOWS[node.op])), dtype or "float32")


@fold("MelWeightMatrix")
def mel(node: Node, given: Sequence[Array]) -> Array:
    from pe_cli.session.importing.onnx.file import element_type

    bins, length, rate, low, high = (float(v.reshape(-1)[0]) for v in given)
    shape = bounded([int(length) // 2 + 1, int(bins), _COLUMN], "its matrix")[:2]
    # The mel scale of HTK: 2595 log10(1 + f / 700).
    least, most = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = np.arange(int(bins) + 2) * ((most - least) / (int(bins) + 2)) + least
    edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(int)
    made = np.zeros(shape)
    for i in range(int(bins)):
        left, middle, right = edges[i : i + 3]
        # Two edges that fall on one bin leave no slope to divide by; the bin then counts whole.
        if middle == left:
            made[middle, i] = 1
        else:
            made[left : middle + 1, i] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right > middle:
            made[middle:right, i] = (right - np.arange(middle, right)) / (right - middle)
    _, dtype = element_type(int(node.attr("output_datatype", 1)))
    return made.astype(dtype or "float32")


@form(*_WINDOWS, "MelWeightMatrix")
def of_numbers(node: Node) -> Value:
    """Refuse one of which only a step tells the size: one of constants is folded.

    Raises:
        NeedsConstant: always.
    """
    open_ = next(i for i, value in enumerate(node.values) if value is not None and value.constant is None)
    raise NeedsConstant(node.inputs[open_], "the size")
