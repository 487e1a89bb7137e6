"""Beam search: a step of a decoder runs again and again, and the best sequences of every sample go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS
from pe_cli.layers.control.loops import Scan
from pe_cli.layers.define.registry import find
from pe_cli.program.ir import Block, Variable

States = Mapping[str, Variable]
#: What stands for minus infinity, as in fluid's BeamSearchDecoder.
#: Finite, since it is multiplied by 0 for beams that go on, and minus infinity times 0 is NaN.
NEVER = -1e9


@dataclass(frozen=True)
class BeamSearch:
    """How sequences are searched for.

    Args:
        start: token that every sequence begins behind.
        end: token that ends one.
        size: sequences of every sample that go on.
        steps: tokens of a sequence at most.

    Raises:
        PeError: no beam, or no step.
    """

    start: int
    end: int
    size: int
    steps: int

    def __post_init__(self) -> None:
        for name, value in (("beam_size", self.size), ("max_step_num", self.steps)):
            if value < 1:
                raise PeError(f"beam: {name} is {value}, must be at least 1")
        for name, value in (("start_token", self.start), ("end_token", self.end)):
            if value < 0:
                raise PeError(f"beam: {name} is {value}, must be at least 0")

    def run(self, block: Block, starts: States, body: Callable[[Variable, States], tuple[Variable, States]]) -> list[Variable]:
        """Append the search.

        A sequence's score is the sum of the logarithms of its tokens' probabilities. One that has ended stays as it is, at no cost.
        What the body reads from outside and has a row per sample is repeated for every beam.

        Args:
            block: that ops are appended to.
            starts: state -> what it begins as, [batch, ...].
            body: `body(the token before [rows, 1] int64, states [rows, ...]) -> (logits [rows, tokens], next states)`, of
                batch * beam_size rows; appends ops.

        Returns:
            The best sequence of every sample, int64 [batch, steps], with the end token behind its end; all of them, the best first,
            [batch, beams, steps]; and their scores, [batch, beams].

        Raises:
            PeError: logits that are none, or a start or end token that is no token.
        """
        sample = next(iter(starts.values()))
        ones = _filled(sample, [1], "int64", 1.0)
        first = find("scale").fn(find("cumsum").fn(ones, 0, True), float(self.size))  # row of every sample's first beam
        token = find("reshape").fn(_filled(sample, [self.size], "int64", float(self.start)), [-1, 1])
        repeated = {name: _repeated(v, self.size) for name, v in starts.items()}
        # Scores are of the states' element type, which logits share as a rule; states of whole numbers alone leave float32.
        kind = next((v.dtype for v in starts.values() if v.dtype in FLOATS), "float32")
        scores = self._first_scores(sample, kind)
        ended = _filled(sample, [self.size], kind, 0.0)
        # One step of the decoder is written once and runs for all beams: a beam is a row of a larger batch.
        loop = Scan(block)
        before, held = loop.state(token), {name: loop.state(v) for name, v in repeated.items()}
        total, done = loop.state(scores), loop.state(ended)
        logits, after = body(before, held)
        self._check(logits)
        best, ids, parents = self._choose(logits, total, done)
        # parents count the beams of a sample; with the row of its first beam they are rows of the batch.
        rows = find("reshape").fn(find("elementwise_add").fn(parents, first), [-1])
        loop.update(before, find("reshape").fn(ids, [-1, 1]))
        for name, state in held.items():
            loop.update(state, find("gather").fn(after[name], rows))
        # Whether a beam has ended goes with it to its new place.
        stays = find("reshape").fn(find("gather").fn(find("reshape").fn(done, [-1, 1]), rows), [-1, self.size])
        loop.update(total, best)
        loop.update(done, find("elementwise_max").fn(stays, self._is_end(ids, kind)))
        loop.output(ids)
        loop.output(parents)
        own = {first.name}
        # What the body reads from outside has a row per sample, and is needed for every beam; the table of first rows is made for beams
        # already.
        (all_ids, all_parents), finals = loop.close(
            steps=self.steps, captured=lambda v: v if v.name in own or v.shape[:1] != (-1,) else _repeated(v, self.size)
        )
        # Only now are whole sequences put together: steps kept the choices, and each beam's way back through them is followed.
        found = find("transpose").fn(find("gather_tree").fn(all_ids, all_parents), [1, 2, 0])
        top = find("reshape").fn(find("slice").fn(found, [1], [0], [1]), [-1, self.steps])
        # The states' order is that of the calls above: totals are the last but one.
        made = [top, found, finals[-2]]
        for v in made:
            v.stop_gradient = True
        return made

    def _first_scores(self, sample: Variable, kind: str) -> Variable:
        """Return scores of which only the first beam's is possible: all beams begin alike."""
        zero = _filled(sample, [1], kind, 0.0)
        if self.size == 1:
            return zero
        return find("concat").fn([zero, _filled(sample, [self.size - 1], kind, NEVER)], 1)  # type: ignore[no-any-return]

    def _check(self, logits: Variable) -> None:
        if len(logits.shape) != 2 or logits.shape[1] < 1 or logits.dtype not in FLOATS:
            hint = "output: the last fc, without softmax"
            raise PeError(f"beam: its block gives {logits.type}, and not logits [batch, tokens]", hint=hint)
        for name, value in (("start_token", self.start), ("end_token", self.end)):
            if value >= logits.shape[1]:
                raise PeError(f"beam: {name} is {value}, and the block has logits of {logits.shape[1]} tokens")

    def _choose(self, logits: Variable, total: Variable, done: Variable) -> tuple[Variable, Variable, Variable]:
        """Return the best scores [batch, beams] in falling order, their tokens, and the beams that they go on from."""
        width = logits.shape[1]
        logs = find("reshape").fn(find("log_softmax").fn(logits), [-1, self.size, width])
        end = find("one_hot").fn(find("fill_constant").fn([1, 1], "int64", float(self.end)), width)
        only = find("scale").fn(find("reshape").fn(end, [width]), -NEVER, NEVER)  # 0 for the end token, else never
        only = only if only.dtype == logits.dtype else find("cast").fn(only, logits.dtype)
        # A beam that has ended goes on with the end token at no cost, and with nothing else.
        going = find("elementwise_mul").fn(logs, find("scale").fn(done, -1.0, 1.0), 0)
        over = find("elementwise_mul").fn(find("elementwise_add").fn(find("zeros_like").fn(logs), only), done, 0)
        every = find("elementwise_add").fn(find("elementwise_add").fn(going, over), total, 0)
        # One choice among all continuations of all beams of a sample: a beam may go on several times, or not at all.
        best, places = find("topk").fn(find("reshape").fn(every, [-1, self.size * width]), self.size)
        per = find("fill_constant").fn([1], "int64", float(width))
        return best, find("elementwise_mod").fn(places, per), find("elementwise_floordiv").fn(places, per)

    def _is_end(self, ids: Variable, kind: str) -> Variable:
        end = find("fill_constant").fn([1], "int64", float(self.end))
        return find("cast").fn(find("equal").fn(ids, end), kind)  # type: ignore[no-any-return]


def _filled(like: Variable, sizes: list[int], dtype: str, value: float) -> Variable:
    """Return [batch, sizes] of one value, with as many rows as another variable."""
    return find("fill_constant_batch_size_like").fn(like, [-1, *sizes], dtype, value)  # type: ignore[no-any-return]


def _repeated(x: Variable, count: int) -> Variable:
    """Return [batch * count, ...] of [batch, ...]: every row as often as there are beams."""
    if count == 1:
        return x
    wide: Any = find("expand").fn(find("unsqueeze").fn(x, [1]), [1, count, *[1] * (len(x.shape) - 1)])
    return find("reshape").fn(wide, [-1, *x.shape[1:]])  # type: ignore[no-any-return]
