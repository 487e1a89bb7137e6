"""Formats, `float` and `int` of a script that `pe run` runs take arrays of one number for numbers, as NumPy did before 2.4."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.paddle.number_formats import compiled


def run(source, **variables):
    exec(compiled(source.encode(), "script.py"), variables)
    return variables["text"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('text = "%d: %.2f" % (3, x)', "3: 1.50"),
        ('text = "%f%%" % x', "1.500000%"),
        ('text = "%s and %d" % (x, x)', "[1.5] and 1"),
        ('text = "%*.*f" % (6, 1, x)', "   1.5"),
        ('text = "%(a)5.1f %(b)s" % {"a": x, "b": x}', "  1.5 [1.5]"),
        ('text = "a %d, " "b %g" % (\n    7,\n    x)', "a 7, b 1.5"),
        ("text = str(7 % 4)", "3"),
        ("text = f'{float(x)} {int(x.reshape(1, 1))} {float(\"2\")} {int(\"11\", 2)}'", "1.5 1 2.0 3"),
        ("import math\ntext = f'{math.floor(x)} {math.pow(x.reshape(1, 1), 2)}'", "1 2.25"),
        ('text = "%s" % [x.sum() for _ in ("%f" % x,)]', "[np.float64(1.5)]"),
    ],
)
def test_arrays_of_one_number_are_numbers_where_numbers_are_written(source, text):
    assert run(source, x=np.array([1.5])) == text


@pytest.mark.parametrize(
    "source",
    [
        "text = float(y)", "import math; text = math.exp(y)", 'text = "%f" % y', 'text = "%f %f" % (y, y)', 'text = "%f" % ()',
        'text = "%d" % "a"',
    ],
)  # fmt: skip
def test_what_is_no_number_stays_an_error_of_its_line(source):
    with pytest.raises(TypeError) as caught:
        run(f"\n{source}", y=np.ones(2))
    assert caught.traceback[-1].lineno == 1


def test_no_python_is_a_syntax_error_that_names_its_line():
    with pytest.raises(SyntaxError) as caught:
        compiled(b"x = 1\nprint x\n", "script.py")
    assert (caught.value.filename, caught.value.lineno) == ("script.py", 2)
