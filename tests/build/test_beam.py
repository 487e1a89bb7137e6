"""A layer of a model file that searches for the best sequences: beam."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from pe_cli.build.build import Built
from tests.build.test_regions import run

BEAM = """
feeds: {h: {shape: [3]}, more: {shape: [4]}}
blocks:
  step:
    args: {input: ~, state: ~, words: 4}
    layers:
      word:  {type: embedding, input: input, size: ["${words}", 3], param_attr: {name: words}}
      mixed: {type: fc, input: [word, state], size: 3, act: tanh, bias_attr: false}
      first: {type: fc, input: mixed, size: "${words}", bias_attr: false}
      out:   {type: elementwise_add, x: first, y: more}
    next: {state: mixed}
    output: out
layers:
  said: {beam: step, start: {state: h}, start_token: 1, end_token: 0, beam_size: 2, max_step_num: 3}
fetches: [said, said.1, said.2]
"""


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - x.max() - np.log(np.exp(x - x.max()).sum())


class Network:
    """The step of the model above, for one sample, in NumPy."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shapes = {"words": (4, 3), "said/mixed.w_0": (3, 3), "said/mixed.w_1": (3, 3), "said/first.w_0": (3, 4)}
        self.values = {name: rng.standard_normal(shape).astype("float32") * 2 for name, shape in shapes.items()}
        self.h, self.more = (rng.standard_normal((5, n)).astype("float32") for n in (3, 4))

    def step(self, sample: int, word: int, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        v = {name: a.astype(float) for name, a in self.values.items()}
        state = np.tanh(v["words"][word] @ v["said/mixed.w_0"] + state @ v["said/mixed.w_1"])
        return log_softmax(state @ v["said/first.w_0"] + self.more[sample]), state

    def score(self, sample: int, words: tuple[int, ...]) -> float:
        """Return the logarithm of a whole sequence's probability; behind the end there are only ends."""
        total, before, state = 0.0, 1, self.h[sample].astype(float)
        for i, word in enumerate(words):
            if i and words[i - 1] == 0:
                return total if not any(words[i:]) else -np.inf
            logs, state = self.step(sample, before, state)
            total, before = total + logs[word], word
        return total

    def search(self, sample: int, beams: int, steps: int) -> list[tuple[float, tuple[int, ...]]]:
        """Keep the best prefixes, as a beam search does."""
        kept: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        for _ in range(steps):
            longer = [(self.score(sample, (*words, w)), (*words, w)) for _, words in kept for w in range(4)]
            kept = sorted(longer, key=lambda found: -found[0])[:beams]
        return kept


@pytest.mark.parametrize("beams", [1, 2, 3])
def test_the_best_sequences_go_on(built: Callable[[str], Built], beams: int) -> None:
    network = Network(beams)
    found = built(BEAM.replace("beam_size: 2", f"beam_size: {beams}"))
    best, every, scores = run(found, {"h": network.h, "more": network.more}, ["said", "said.1", "said.2"], network.values)
    assert (best.shape, every.shape, scores.shape) == ((5, 3), (5, beams, 3), (5, beams))
    for i in range(5):
        wanted = network.search(i, beams, 3)
        assert [tuple(row) for row in every[i].tolist()] == [words for _, words in wanted]
        np.testing.assert_allclose(scores[i], [score for score, _ in wanted], rtol=1e-4)
        assert tuple(best[i].tolist()) == wanted[0][1]


def test_enough_beams_find_the_best_of_all_sequences(built: Callable[[str], Built]) -> None:
    network = Network(0)
    found = built(BEAM.replace("beam_size: 2", "beam_size: 16"))
    (best,) = run(found, {"h": network.h, "more": network.more}, ["said"], network.values)
    for i in range(5):
        assert tuple(best[i].tolist()) == max(itertools.product(range(4), repeat=3), key=lambda words: network.score(i, words))


def test_an_empty_batch_has_no_sequences(built: Callable[[str], Built]) -> None:
    feeds = {"h": np.zeros((0, 3), "float32"), "more": np.zeros((0, 4), "float32")}
    assert run(built(BEAM), feeds, ["said"], Network(0).values)[0].shape == (0, 3)


def test_training_and_search_share_the_parameters_of_a_block(built: Callable[[str], Built]) -> None:
    found = built(BEAM.replace("feeds: {", "feeds: {seen: {shape: [3, 1], dtype: int64}, ").replace(
        "layers:\n  said", "layers:\n  taught: {scan: step, input: seen, start: {state: h}}\n  said"))  # fmt: skip
    names = {p.name for p in found.eval.global_block().parameters()}
    assert names == {"words", *(f"{layer}/{name}" for layer in ("taught", "said") for name in ("mixed.w_0", "mixed.w_1", "first.w_0"))}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("start: {state: h}, ", "", "layer 'said' has beam, but no start"),
        ("start: {state: h}", "start: {state: {shape: [3]}}", "beam needs a state that begins as a variable"),
        (", beam_size: 2", "", "layer 'said' has beam, but no beam_size"),
        ("beam_size: 2", "beam_size: 0", "beam_size is 0, must be at least 1"),
        ("max_step_num: 3", "max_step_num: 0", "max_step_num is 0, must be at least 1"),
        ("end_token: 0", "end_token: 4", "end_token is 4, and the block has logits of 4 tokens"),
        ("start_token: 1", "start_token: -1", "start_token is -1, must be at least 0"),
        ("start_token: 1", "start_token: one", "start_token"),
        ("elementwise_add, x: first, y: more", "reshape, x: first, shape: [-1, 2, 2]", "float32[batch, 2, 2], and not logits"),
        ("max_step_num: 3", "max_step_num: 3, input: h", "layer 'said' has no argument 'input'"),
        ("    next: {state: mixed}\n", "", "block 'step' needs next"),
        ("feeds: {h: {shape: [3]}", "feeds: {h: {shape: [3], replicate: true}", "has no row per sample"),
    ],
)  # fmt: skip
def test_mistakes(errors: Callable[..., list[str]], old: str, new: str, said: str) -> None:
    assert old in BEAM
    found = errors(BEAM.replace(old, new))
    assert any(said in error for error in found), found
    assert all("this is a bug" not in error for error in found)
