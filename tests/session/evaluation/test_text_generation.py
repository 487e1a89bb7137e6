"""How the next token is drawn, against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pe_cli.session.evaluation.text_generation import Sampling

SHARES = [0.25, 0.5, 0.1, 0.15]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param({}, SHARES, id="as the model says"),
        pytest.param({"temperature": 0}, [0, 1, 0, 0], id="temperature 0 takes the most probable one"),
        pytest.param({"temperature": 0.5}, [0.0625 / 0.345, 0.25 / 0.345, 0.01 / 0.345, 0.0225 / 0.345], id="one half squares"),
        pytest.param({"top_k": 1}, [0, 1, 0, 0], id="the most probable one"),
        pytest.param({"top_k": 2}, [1 / 3, 2 / 3, 0, 0], id="the two most probable ones"),
        pytest.param({"top_k": 9}, SHARES, id="more than there are"),
        pytest.param({"top_p": 0.5}, [0, 1, 0, 0], id="half of the probability is one token"),
        pytest.param({"top_p": 0.51}, [1 / 3, 2 / 3, 0, 0], id="a little more is two"),
        pytest.param({"top_p": 0.9}, [5 / 18, 5 / 9, 0, 1 / 6], id="nine tenths are three"),
        pytest.param({"top_p": 1.0}, SHARES, id="all"),
        pytest.param({"top_k": 3, "top_p": 0.8}, [1 / 3, 2 / 3, 0, 0], id="top_p is of what top_k leaves: 5/6 of 0.9"),
        pytest.param({"temperature": 0.5, "top_p": 0.7}, [0, 1, 0, 0], id="top_p is of what the temperature leaves"),
    ],
)
def test_probabilities(how, expected):
    logits = np.log(SHARES) + 7  # a constant changes nothing
    np.testing.assert_allclose(Sampling(**how).probabilities(logits), expected, atol=1e-12)


def test_of_equally_probable_tokens_those_of_smaller_ids_are_kept():
    assert Sampling(top_k=2).probabilities(np.zeros(4)).tolist() == [0.5, 0.5, 0, 0]
    assert Sampling(temperature=0).probabilities(np.zeros(3)).tolist() == [1, 0, 0]


@pytest.mark.parametrize("how", [{}, {"temperature": 1e-300}, {"temperature": 1e300}, {"top_p": 1.0}, {"top_k": 3}])
def test_a_token_of_minus_infinity_is_never_drawn(how):
    found = Sampling(**how).probabilities(np.array([-np.inf, 0.0, -np.inf, 3.0]))
    assert found[[0, 2]].tolist() == [0, 0]
    assert found.sum() == pytest.approx(1)


@given(
    logits=st.lists(st.floats(-50, 50), min_size=1, max_size=20),
    temperature=st.floats(0, 3),
    top_k=st.none() | st.integers(1, 20),
    top_p=st.none() | st.floats(0.01, 1),
    number=st.integers(0, 10**6),
)
@settings(max_examples=200, deadline=None)
def test_what_is_drawn_has_a_probability(logits, temperature, top_k, top_p, number):
    sampling = Sampling(temperature, top_k, top_p, seed=5)
    shares = sampling.probabilities(np.array(logits))
    assert shares.sum() == pytest.approx(1)
    assert (shares > 0).sum() <= (top_k or len(logits))
    assert shares[sampling.draw(np.array(logits), number)] > 0


def test_draws_have_their_frequencies_and_depend_on_seed_and_number_alone():
    sampling, logits = Sampling(seed=3), np.log(SHARES)
    drawn = [sampling.draw(logits, number) for number in range(10_000)]
    counts = np.bincount(drawn, minlength=4)
    deviation = np.sqrt(10_000 * np.array(SHARES) * (1 - np.array(SHARES)))
    assert (np.abs(counts - 10_000 * np.array(SHARES)) < 4 * deviation).all()
    assert [sampling.draw(logits, number) for number in (5, 4)] == [drawn[5], drawn[4]]
    assert [Sampling(seed=4).draw(logits, number) for number in range(50)] != drawn[:50]


@pytest.mark.parametrize(
    ("logits", "place", "drawn"),
    [
        pytest.param([-np.inf, 0.0], 0.0, 1, id="the first number of all, and a first token that is never drawn"),
        pytest.param([0.0, 0.0], 0.5, 1, id="an interval has its begin and not its end"),
        pytest.param([0.0, -np.inf, 0.0], 0.5, 2, id="a token between that is never drawn"),
    ],
)
def test_a_number_at_the_edge_of_two_tokens_draws_one_that_has_a_probability(monkeypatch, logits, place, drawn):
    monkeypatch.setattr("pe_cli.session.evaluation.text_generation.uniform", lambda key, at: np.full(len(at), place))
    assert Sampling().draw(np.array(logits), 0) == drawn
