"""Plain scalars by YAML 1.2.2, section 10.3.2, whose table these values come from."""

from __future__ import annotations

import math

import pytest

from pe_cli.config.yaml_scalars import resolve, write_float
from pe_cli.core.errors import PeError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("null", None, id="null is null"),
        pytest.param("~", None, id="a tilde is null"),
        pytest.param("", None, id="nothing is null"),
        pytest.param("nUll", "nUll", id="null in odd case is text"),
        pytest.param("true", True, id="true is true"),
        pytest.param("FALSE", False, id="FALSE is false"),
        pytest.param("yes", "yes", id="yes is text"),
        pytest.param("on", "on", id="on is text"),
        pytest.param("n", "n", id="n is text"),
        pytest.param("0", 0, id="zero"),
        pytest.param("-19", -19, id="a negative integer"),
        pytest.param("+12", 12, id="a plus sign"),
        pytest.param("012", 12, id="a leading zero makes no octal"),
        pytest.param("0o17", 15, id="octal"),
        pytest.param("0x3A", 58, id="hexadecimal"),
        pytest.param("0b11", "0b11", id="binary is text"),
        pytest.param("1_000", "1_000", id="underscores make text"),
        pytest.param("1:30", "1:30", id="base 60 is text"),
        pytest.param("2001-01-01", "2001-01-01", id="a date is text"),
        pytest.param("1e-3", 0.001, id="an exponent without a point is a number"),
        pytest.param("1E3", 1000.0, id="a capital exponent"),
        pytest.param("0.", 0.0, id="a point at the end"),
        pytest.param("-.5", -0.5, id="a point at the start"),
        pytest.param("12e03", 12000.0, id="a padded exponent"),
        pytest.param(".inf", math.inf, id="infinity"),
        pytest.param("-.Inf", -math.inf, id="negative infinity"),
        pytest.param(".", ".", id="a point alone is text"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param("inf", "inf", id="inf without a point is text"),
        pytest.param("-", "-", id="a dash alone is text"),
    ],
)
def test_values(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number() -> None:
    assert math.isnan(resolve(".nan"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("9223372036854775808", "9223372036854775808 does not fit into 64 bits", id="2**63 is too much"),
        pytest.param("1" * 5000, f"{'1' * 37}... does not fit into 64 bits", id="five thousand digits"),
        pytest.param("1e999", "1e999 is more than a float64 can hold", id="a huge exponent"),
    ],
)
def test_numbers_that_no_type_holds_are_refused(text: str, message: str) -> None:
    with pytest.raises(PeError) as caught:
        resolve(text)
    assert caught.value.message == message


def test_the_smallest_int64_fits() -> None:
    assert resolve("-9223372036854775808") == -(2**63)


@pytest.mark.parametrize("value", [0.1, 1e-5, 1e300, -2.0, math.inf, -math.inf])
def test_written_floats_are_read_back(value: float) -> None:
    assert resolve(write_float(value)) == value
