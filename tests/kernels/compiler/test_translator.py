"""What kernels compute is what Python computes of the same text; kinds of values are those of numba."""

from __future__ import annotations

import itertools
import math
import operator

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.kernels.compiler import function_source, value_kinds
from pe_cli.kernels.compiler.unit import Unit
from pe_cli.kernels.language import TEXTS, Int, Ptr, PtrF64, PtrI64, helper, kernel_code, make_kernel

KINDS = ("bool", "uint8", "int32", "uint32", "int64", "uint64", "float32", "float64")
OPERATORS = {
    "Add": operator.add, "Mult": operator.mul, "Div": operator.truediv, "FloorDiv": operator.floordiv, "Mod": operator.mod,
    "LShift": operator.lshift, "RShift": operator.rshift, "BitAnd": operator.and_,
}  # fmt: skip
PEERS = (3, 7, -7, 1, -1, 12, 2**40, -(2**40))
TRIED = (0, 1, -1, 5, -5, 12, 100, -100, 2**40 + 3, -(2**50) + 1)
REALS = (0.0, 1.5, -1.5, 2.0, -7.25, 1e-3, 123.456, -3.0)


# --- kinds ------------------------------------------------------------------------------------------------------------


def numbas():
    """Return numba's types by our names, and what finds the type of a function's result."""
    from numba.core import types as core
    from numba.core.registry import cpu_target

    context = cpu_target.typing_context
    context.refresh()
    return {name: core.boolean if name == "bool" else getattr(core, name) for name in KINDS}, context


def test_operands_become_what_numba_makes_of_them():
    from numba.core.errors import NumbaError

    kinds, context = numbas()
    for name, function in OPERATORS.items():
        for a, b in itertools.product(KINDS, KINDS):
            try:
                expected = str(context.resolve_function_type(function, (kinds[a], kinds[b]), {}).return_type)
            except NumbaError:
                with pytest.raises(value_kinds.Unclear):
                    value_kinds.computed_in(name, a, b)
            else:
                assert value_kinds.computed_in(name, a, b) == expected, (name, a, b)


def test_values_that_meet_become_what_numba_makes_of_them():
    kinds, context = numbas()
    for a, b in itertools.product(KINDS, KINDS):
        assert value_kinds.together(a, b) == str(context.unify_types(kinds[a], kinds[b])), (a, b)


# --- values -----------------------------------------------------------------------------------------------------------


@helper
def both(a, b):
    """Return a sum and a difference."""
    return a + b, a - b


@helper
def twice(f, a, b):
    """Apply a helper that is handed on."""
    c, d = f(a, b)
    return f(c, d)


def whole_numbers(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):
    a, b = x[0], x[1]
    results = a // b, a % b, -a, (a % 1000) * b % 1000003, (a & 63) << 3, a >> 2, a & b, a | b, a ^ b
    for i in range(1):
        out[i] = results[0]
    out[1], out[2], out[3], out[4], out[5] = results[1], results[2], results[3], results[4], results[5]
    out[6] = results[6]
    out[7] = results[7]
    out[8] = results[8]
    out[9] = abs(a)
    out[10] = min(a, b, 4)
    out[11] = max(a, b, 4)
    out[12] = a / b
    out[13] = 1 if a in (1, 5, 12) else 0
    out[14] = -(2**5) + (1 << 4) + 7 // 2


def real_numbers(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):
    a, b = y[0], y[1]
    out[0] = a + b * a - b
    if b != 0:
        out[1] = a // b
        out[2] = a % b
        out[3] = a / b
    out[4] = math.floor(a) + math.ceil(b)
    out[5] = math.sqrt(abs(a))
    out[6] = a**3 + b**0
    out[7] = min(a, b)
    out[8] = max(a, 0.25)
    out[9] = int(a)
    out[10] = -b
    out[11] = float(int(b))


def ways_through(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):
    a, b = x[0], x[1]
    found = 0
    if (a > b and a > 0) or not b > 3:
        found += 1
    if 0 <= a < 100 <= b or a == b != 12:
        found += 2
    found += 4 if a and b else 8
    out[0] = found
    out[1] = (a or b) + 2 * (a and b)
    value = a if a > b else y[0]
    out[2] = value
    mixed = 0
    if a < 0:
        mixed = 0.5
    elif a < 10:
        mixed = 2
    out[3] = mixed
    out[4] = 0
    for value in (a, b):
        out[4] = out[4] * 3 + value % 7


def rounds(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):  # noqa: C901 - a loop of each kind
    a = x[0] % 17
    total = 0
    for i in range(a):
        if i == 3:
            continue
        for k in range(i, 20, 3):
            if k > 11:
                break
            total += i * k
        total += 1
    for i in range(a, -5, -2):
        total = total * 3 % 1009 + i
    for i in range(5, 5):
        total = i
    out[0] = total
    total = 1
    while total < 100:
        total *= 2
        if total == 32 and a > 8:
            break
    out[1] = total
    steps = 0.0
    while True:
        steps += 0.5
        if steps > a:
            out[2] = steps
            return
        out[3] += steps


def kinds_of_two_rounds_ago(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):
    a, b = x[0], 0
    for i in range(3):
        out[i] = b
        b = a
        a = y[0]
        continue


def helpers(x: PtrI64, y: PtrF64, out: PtrF64, n: Int):
    out[0], out[1] = twice(both, x[0], 3)
    out[2], out[3] = twice(both, y[0], y[1])


PROGRAMS = [whole_numbers, real_numbers, ways_through, rounds, kinds_of_two_rounds_ago, helpers]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_values_are_those_of_python(call, program, monkeypatch):
    made = make_kernel(program, f"{__name__}:{program.__name__}", exact=True)
    for a, b in itertools.product(TRIED, PEERS):
        reals = [REALS[a % len(REALS)], REALS[b % len(REALS)]]
        expected, got = [0.0] * 16, np.zeros(16)
        with monkeypatch.context() as plain:
            for name, value in (("both", both.fn), ("twice", twice.fn)):
                plain.setitem(program.__globals__, name, value)
            program([a, b], reals, expected, 2)
        call(made, "float64", np.array([a, b]), np.array(reals), got, 2)
        assert list(map(float, expected)) == list(got), (a, b)


def remainders(x: PtrI64, out: PtrI64, n: Int):
    for i in range(n):
        out[2 * i] = x[2 * i] // x[2 * i + 1]
        out[2 * i + 1] = x[2 * i] % x[2 * i + 1]


def test_a_whole_number_by_none_is_none_and_traps_nothing(call):
    made = make_kernel(remainders, f"{__name__}:remainders")
    least = -(2**63)
    x, out = np.array([7, 0, 0, 0, least, -1, least, 1]), np.full(8, 9)
    call(made, "float64", x, out, 4)
    assert list(out) == [0, 0, 0, 0, 0, 0, least, 0]


# --- what the language has not ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param("for i in x: out[i] = 0", "a loop over x", id="loops over anything but numbers"),
        pytest.param("out[0] = f'{n}'", "f'{n}'", id="texts"),
        pytest.param("out[0] = unknown(n)", "the name unknown", id="names of nothing"),
        pytest.param("out[0] = n[0]", "an element of int64", id="elements of a number"),
        pytest.param("out[0] = later; later = 1", "later, which nothing has set yet", id="variables before they are set"),
        pytest.param("out[0] = 1.5 << n", "LShift of float64 and int64", id="shifts of reals"),
        pytest.param("with n: out[0] = 1", "the statement With", id="other statements"),
        pytest.param("out[0] = [1][0]", "[1]", id="lists"),
    ],
)
def test_what_the_language_has_not_is_told_with_its_line(body, said):
    space = {}
    exec(kernel_code(f"from __future__ import annotations\ndef made(x: Ptr, out: Ptr, n: Int):\n    {body}\n"), space)
    made = make_kernel(space["made"], f"{__name__}:{body}")
    with pytest.raises(PeError) as error:
        Unit("float32", "float32").kernel(made, "entry")
    assert f">:3: the kernel language has not: {said}" in error.value.message


@helper
def round_again(a):
    """Call itself."""
    return round_again(a)


def calls_itself(out: Ptr):
    out[0] = round_again(1)


def test_a_helper_that_calls_itself_is_told():
    with pytest.raises(PeError, match="round_again of kernels calls itself"):
        Unit("float32", "float32").kernel(make_kernel(calls_itself, f"{__name__}:calls_itself"), "entry")


# --- the text of a function ----------------------------------------------------------------------------------------------


def made_of(text):
    space = {}
    code = kernel_code(text)
    exec(code, space)
    return space["f"], code.co_filename


def test_a_text_that_has_changed_since_is_not_compiled():
    function, name = made_of("def f(x):\n    return x + 41\n")
    assert function_source.tree_of(function).name == "f"
    TEXTS[name] = "def f(x):\n    return x + 42\n"
    with pytest.raises(PeError, match="text of kernel function f"):
        function_source.tree_of(function)


def test_of_two_functions_in_one_line_each_has_its_own_text():
    space = {}
    exec(kernel_code("f = lambda x: x + 1; g = lambda x: x + 2\n"), space)
    trees = [function_source.tree_of(space[name]) for name in "fg"]
    assert [tree.body.right.value for tree in trees] == [1, 2]
