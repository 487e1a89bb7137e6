"""Pickles are read and never run: what Python and NumPy write comes back, and everything else is refused."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from pe_cli.io.fluid.pickled import read


@pytest.mark.parametrize("protocol", range(5))
def test_what_numpy_writes_is_read(protocol):
    arrays = {
        "a": np.arange(6, dtype=np.uint8).reshape(2, 3),
        "b": np.asarray([[1.5, 2], [3, 4]], ">f4", order="F"),
    }
    found = read(
        pickle.dumps({"x": [1, -(2**40), "é", b"\xff", None, True, 2.5, (), (1,)], **arrays}, protocol=protocol)
    )
    assert found["x"][:7] == [1, -(2**40), "é", b"\xff", None, True, 2.5]
    for name, array in arrays.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_strings_of_python_2_are_bytes():
    assert read(b"\x80\x02}q\x01(U\x04dataq\x02U\x02\xffaU\x06labels]q\x03(K\x01K\x02eu.") == {
        b"data": b"\xffa",
        b"labels": [1, 2],
    }


@pytest.mark.parametrize(
    ("data", "why"),
    [
        pytest.param(b"cos\nsystem\n(S'true'\ntR.", "would call os.system", id="a command"),
        pytest.param(pickle.dumps(np.dtype), "would call numpy.dtype|has no numbers", id="a function"),
        pytest.param(
            b"cnumpy\nndarray\n((J\xff\xff\xff\x7ftS'u1'\ntR.",
            "with what it does not take",
            id="an array without contents",
        ),
        pytest.param(pickle.dumps({"a": np.array([object()])}), "would call|no numbers", id="an array of objects"),
        pytest.param(b"]2a.", "DUP", id="an instruction that is not known"),
        pytest.param(b"(" * 9999 + b".", "takes more", id="marks"),
        pytest.param(b"I1\n", "pickle exhausted|cut off", id="no end"),
        pytest.param(b"X\xff\xff\xff\x7fab", "expected 2147483647 bytes", id="a text of two gigabytes"),
        pytest.param(b"](I1\nh\x05e.", "not there", id="what was never kept"),
        pytest.param(pickle.dumps([[[[[[[[[[[1]]]]]]]]]]]), "levels", id="lists in lists"),
        pytest.param(b"", r"\w", id="nothing"),
    ],
)
def test_everything_else_is_refused(data, why):
    with pytest.raises(ValueError, match=why):
        read(data)


def test_a_pickle_that_is_cut_off_anywhere_is_refused():
    data = pickle.dumps({b"data": np.arange(6, dtype=np.uint8).reshape(2, 3), b"labels": [1, 2]}, protocol=2)
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"\w"):
            read(data[:end])


def test_what_is_named_again_and_again_is_bounded():
    value: object = 1.0
    for _ in range(7):
        value = [value] * 40
    with pytest.raises(ValueError, match="too many values"):
        read(pickle.dumps(value, protocol=2))
    with pytest.raises(ValueError, match="it would call"):
        read(b"\x80\x04]K\x01\x93.")
