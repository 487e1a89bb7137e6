"""Weights of an LSTM as its steps read them, and their gradients back from that; `lstm.py` tells the order."""

from __future__ import annotations

from pe_cli.kernels.cpu.gemm import make_strips
from pe_cli.kernels.cpu.non_temporal import touch
from pe_cli.kernels.language import Int, Ptr, T, address, kernel


def wide_of(units: int) -> int:
    """Return the units of a gate as stored: whole vectors for every processor and element type."""
    return -(-units // 16) * 16


@kernel
def widen_weights(w: Ptr, rows: Int, all_rows: Int, units: Int, wide: Int, out: Ptr):
    """Copy [rows, 4 units] to [all_rows, 4 wide], zeros where it is padded."""
    for i in range(all_rows * 4 * wide):
        out[i] = T(0)
    for r in range(rows):
        for gate in range(4):
            to = (r * 4 + gate) * wide
            at = (r * 4 + gate) * units
            for j in range(units):
                out[to + j] = w[at + j]


@kernel
def widen_biases(b_ih: Ptr, b_hh: Ptr, given: Int, units: Int, wide: Int, out: Ptr):
    """Add up the biases that are given (1 b_ih, 2 b_hh) in out[4 wide]."""
    for i in range(4 * wide):
        out[i] = T(0)
    for gate in range(4):
        for j in range(units):
            if given & 1:
                out[gate * wide + j] += b_ih[gate * units + j]
            if given & 2:
                out[gate * wide + j] += b_hh[gate * units + j]


@kernel
def pack_weights(w: Ptr, rows: Int, wide: Int, transposed: Int, out: Ptr):
    """Pack [rows, 4 wide] for products with inputs or states, or transposed, for products with gradients of gates."""
    touch(address(w), 4 * wide, rows, 4 * wide)
    if transposed:
        make_strips(1, address(w), 4 * wide, 4 * wide, rows, address(out), 0)
    else:
        make_strips(0, address(w), 4 * wide, rows, 4 * wide, address(out), 0)


@kernel
def narrow_gradients(parts: Ptr, count: Int, rows: Int, all_rows: Int, units: Int, wide: Int, out: Ptr):
    """Add up the groups' gradients [count, all_rows, 4 wide], in order, into [rows, 4 units]."""
    for r in range(rows):
        for gate in range(4):
            at = (r * 4 + gate) * wide
            to = (r * 4 + gate) * units
            for j in range(units):
                out[to + j] = T(0)
            for _ in range(count):
                for j in range(units):
                    out[to + j] += parts[at + j]
                at += all_rows * 4 * wide
