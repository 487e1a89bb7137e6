"""Weights of an LSTM in the order that its steps read, and their gradients back from it; `lstm.py` tells the order."""

from __future__ import annotations

from pe_cli.kernels.gemm import make_strips
from pe_cli.kernels.lang import Int, Ptr, T, address, helper, kernel


def wide_of(units: int) -> int:
    """Return the units of a gate as stored: whole vectors for every processor and element type."""
    return -(-units // 16) * 16


@helper
def _column(gate, wide):
    """Return where a gate of the written order i, f, g, o begins in a row."""
    return (gate if gate < 2 else 5 - gate) * wide


@helper
def _widen(w, rows, all_rows, units, wide, out):
    """Copy [rows, 4 units] to [all_rows, 4 wide] in the inner order of gates, zeros where it is padded."""
    for i in range(all_rows * 4 * wide):
        out[i] = T(0)
    for r in range(rows):
        for gate in range(4):
            to = r * 4 * wide + _column(gate, wide)
            at = (r * 4 + gate) * units
            for j in range(units):
                out[to + j] = w[at + j]


@kernel
def widen_weights(
    w_ih: Ptr, w_hh: Ptr, b_ih: Ptr, b_hh: Ptr, wide_ih: Ptr, wide_hh: Ptr, bias: Ptr, inputs: Int, units: Int,
    wide: Int, biases: Int,
):  # fmt: skip
    """Bring the weights into the inner order, and add up the biases; biases: 1 b_ih, 2 b_hh, 3 both."""
    _widen(w_ih, inputs, inputs, units, wide, wide_ih)
    _widen(w_hh, units, wide, units, wide, wide_hh)
    for i in range(4 * wide):
        bias[i] = T(0)
    for gate in range(4):
        to = _column(gate, wide)
        for j in range(units):
            if biases & 1:
                bias[to + j] += b_ih[gate * units + j]
            if biases & 2:
                bias[to + j] += b_hh[gate * units + j]


@kernel
def pack_weights(wide_ih: Ptr, wide_hh: Ptr, packed_ih: Ptr, packed_hh: Ptr, inputs: Int, wide: Int, transposed: Int):
    """Pack both weights for products with inputs and states, or transposed, for products with gradients of gates."""
    if transposed:
        make_strips(1, address(wide_ih), 4 * wide, 4 * wide, inputs, address(packed_ih), 0)
        make_strips(1, address(wide_hh), 4 * wide, 4 * wide, wide, address(packed_hh), 0)
    else:
        make_strips(0, address(wide_ih), 4 * wide, inputs, 4 * wide, address(packed_ih), 0)
        make_strips(0, address(wide_hh), 4 * wide, wide, 4 * wide, address(packed_hh), 0)


@kernel
def narrow_gradients(parts: Ptr, count: Int, rows: Int, all_rows: Int, units: Int, wide: Int, out: Ptr):
    """Add up the groups' gradients [count, all_rows, 4 wide], in order, into [rows, 4 units] in the written order."""
    for r in range(rows):
        for gate in range(4):
            at = r * 4 * wide + _column(gate, wide)
            to = (r * 4 + gate) * units
            for j in range(units):
                out[to + j] = T(0)
            for _ in range(count):
                for j in range(units):
                    out[to + j] += parts[at + j]
                at += all_rows * 4 * wide
