"""Decimal numbers in text: every one is rounded as Python's `float` rounds it."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli.devices.thread_pool import native_function
from pe_cli.kernels.language import Addr, Int, PtrF64, PtrI64, kernel
from pe_cli.kernels.text.decimal import HARD, NO_NUMBER, READ, powers_of_five, read_decimal

SLACK = 64


@kernel(exact=True)
def read_all(text: Addr, ends: PtrI64, count: Int, powers: PtrI64, found: PtrI64, values: PtrF64):
    """Read numbers that lie one behind the other."""
    for i in range(count):
        found[i], values[i] = read_decimal(text, ends[i], ends[i + 1], powers)


def read(texts):
    """Return what the kernel finds in texts, and its values."""
    parts = [text.encode() for text in texts]
    blob = np.frombuffer(b"".join(parts) + bytes(SLACK), np.uint8)
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    found, values = np.full(len(parts), -1), np.full(len(parts), np.nan)
    arrays = (blob, ends, powers_of_five(), found, values)
    at = [array.ctypes.data for array in arrays]
    record = np.array([at[0], at[1], len(parts), *at[2:]], np.int64)
    native_function(read_all)(record.ctypes.data)
    return found.tolist(), values.tolist()


def bits(value):
    return struct.pack("<d", value)


def same(texts, hard=0.0):
    """Assert that all numbers are read as by `float`, but for a share that is left to it."""
    found, values = read(texts)
    assert set(found) <= {READ, HARD}
    for text, how, value in zip(texts, found, values, strict=True):
        assert how == HARD or bits(value) == bits(float(text)), text
    assert found.count(HARD) <= hard * len(texts)


NORMAL = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or abs(x) >= 2.3e-308)


@settings(max_examples=300, deadline=None)
@given(NORMAL)
def test_what_python_writes_is_read_back(value):
    same([repr(value), f"{value:.17g}", f"{value:.5g}" if abs(value) < 1e308 else "1", f"{value:.18e}"])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**19 - 1), st.integers(-300, 280), st.sampled_from(["", "-", "+"]))
def test_any_19_digits_with_any_exponent(digits, exponent, sign):
    text = f"{sign}{digits}e{exponent}"
    same([text] if digits == 0 or 2.3e-308 < digits * 10.0**exponent < 1.7e308 else ["1"])


def test_random_doubles_of_all_sizes():
    draw = random.Random(0)
    words = [draw.getrandbits(64) for _ in range(20_000)]
    values = [struct.unpack("<d", struct.pack("<Q", word))[0] for word in words]
    same([repr(value) for value in values if math.isfinite(value)], hard=0.005)  # a 2046th is below the normal ones


@pytest.mark.parametrize("power", range(53, 64))
def test_halfway_between_two_doubles_goes_to_the_even_one(power):
    step = 2 ** (power - 52)
    same([str(2**power + k * step // 2 + d) for k in range(1, 8) for d in (-1, 0, 1) if step > 1 or d == 0])


@pytest.mark.parametrize(
    "text",
    [
        "0", "-0", "+0.0", "000", "0e999999", "-0.0e-400", "1", "007", ".5", "5.", "-.5e1", "1E5", "1e+5", "1e-5", "9007199254740993",
        "9999999999999999999", "0.1234567890123456789", "1.7976931348623157e308", "2.2250738585072014e-308", "6.0221407e23",
        "4503599627370496.5", "4503599627370497.5", "0.000000000000000000000000000000000000001",
    ],
)  # fmt: skip
def test_a_number_is_read(text):
    same([text])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("12345678901234567890", id="20 digits"),
        pytest.param("0.12345678901234567891", id="20 digits behind the point"),
        pytest.param("18446744073709551616", id="2^64, whose lower word is 0"),
        pytest.param("1e309", id="above the largest"),
        pytest.param("1.8e308", id="just above the largest"),
        pytest.param("5e-324", id="the smallest, with fewer bits"),
        pytest.param("1e-400", id="rounded to zero"),
        pytest.param("1e99999999999999999999", id="an exponent above int64"),
    ],
)
def test_what_is_hard_is_left_to_python(text):
    assert read([text])[0] == [HARD]


@pytest.mark.parametrize(
    "text",
    [
        "-", "+", ".", "e5", "1e", "1e+", "--1", "+-1", "1-", "1.2.3", "1,5", "1_000", "0x1F", "inf", "-inf", "nan", "infinity", "1 2",
        "1e5.5", "12a", "a12", "1d5", "\uff12", "1f", "1e5e5", "2020-01-02", "10:30", "$5", "5%", "1/2", "",
    ],
)  # fmt: skip
def test_what_is_no_number(text):
    assert read([text + "|"[: not text]])[0] == [NO_NUMBER]


def test_powers_are_those_of_the_paper():
    """Lemire 2021, appendix B: 5^0 is 2^127, 5^-1 is 0xcccc...cd, and 5^55 is the last one that is exact in 128 bits."""
    table = powers_of_five()[:1302].view(np.uint64).reshape(-1, 2)
    assert [hex(int(word)) for word in table[342]] == ["0x8000000000000000", "0x0"]
    assert [hex(int(word)) for word in table[341]] == ["0xcccccccccccccccc", "0xcccccccccccccccd"]
    assert (int(table[342 + 55][0]) << 64 | int(table[342 + 55][1])) == 5**55
