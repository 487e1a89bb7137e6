"""BeamSearchDecoder: keeps the most likely sequences of every sample while dynamic_decode goes on."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np

from pe_cli.layers.control.beam_search import NEVER
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.decoding import Decoder
from pe_cli.paddle.fluid.layers.ops import equal
from pe_cli.paddle.fluid.layers.original_counts import BEAMS_BEGIN, beams_step
from pe_cli.paddle.fluid.layers.tensor import assign, fill_constant_batch_size_like
from pe_cli.paddle.fluid.layers.tensor_arrays import TensorArray
from pe_cli.paddle.fluid.layers.utils import flatten, map_structure
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.program.ir import Variable


class BeamSearchDecoder(Decoder):
    """Keeps beam_size sequences for every sample, those with the largest sums of logarithms of probabilities.

    Args:
        cell: one step, for [batch x beam_size, ...].
        start_token: id that sequences start with.
        end_token: id that ends a sequence.
        beam_size: sequences of every sample.
        embedding_fn: makes inputs of ids [batch, beam_size]; ids are the inputs where there is none.
        output_fn: makes [batch, beam_size, ids] of the outputs of the cell.

    Raises:
        FluidValueError: beam_size is below 1.
    """

    OutputWrapper = namedtuple("OutputWrapper", ("scores", "predicted_ids", "parent_ids"))
    StateWrapper = namedtuple("StateWrapper", ("cell_states", "log_probs", "finished", "lengths"))

    def __init__(
        self, cell: Any, start_token: int, end_token: int, beam_size: int, embedding_fn: Any = None, output_fn: Any = None
    ) -> None:
        if beam_size < 1:
            raise FluidValueError(f"BeamSearchDecoder: beam_size is {beam_size}, must be at least 1")
        self.cell, self.embedding_fn, self.output_fn = cell, embedding_fn, output_fn
        self.start_token, self.end_token, self.beam_size = start_token, end_token, beam_size

    @staticmethod
    def tile_beam_merge_with_batch(x: Any, beam_size: int) -> Any:
        """Repeat every row beam_size times: [batch, ...] becomes [batch x beam_size, ...]."""
        return map_structure(lambda v: _merged(_tiled(v, beam_size)), x)

    def _split(self, x: Variable) -> Any:
        return _with_front(x, 1, [-1, self.beam_size])

    @property
    def tracks_own_finished(self) -> bool:
        """Beams change their places, and what is finished goes with them."""
        return True

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """Return start tokens, states of which only the first beam of every sample is possible, and that nothing is finished."""
        with apart("beams"):
            ids, states, finished = self._begun(initial_cell_states)
        many = len(flatten(initial_cell_states))
        use({**BEAMS_BEGIN, "unsqueeze2": BEAMS_BEGIN["unsqueeze2"] + many, "expand": BEAMS_BEGIN["expand"] + many})
        return self._embedded(ids), states, finished

    def _begun(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        state, beams = flatten(initial_cell_states)[0], self.beam_size
        ids = fill_constant_batch_size_like(state, [-1, beams], "int64", float(self.start_token))
        zero = fill_constant_batch_size_like(state, [-1, beams], state.dtype, 0.0)
        # All beams of a sample begin alike: were more than the first possible, the best continuations would come beam_size times.
        first = assign(np.array([0.0] + [NEVER] * (beams - 1), state.dtype))
        finished = fill_constant_batch_size_like(state, [-1, beams], "bool", 0.0)
        lengths = fill_constant_batch_size_like(state, [-1, beams], "int64", 0.0)
        cells = map_structure(lambda v: _tiled(v, beams), initial_cell_states)
        states = self.StateWrapper(cells, call("elementwise_add", zero, first), finished, lengths)
        return ids, states, finished

    def _embedded(self, ids: Variable) -> Any:
        return self.embedding_fn(ids) if self.embedding_fn else ids

    def step(self, time: Variable, inputs: Any, states: Any, **given: Any) -> tuple[Any, Any, Any, Variable]:
        """Append a step of the cell, and keep the best of what the beams go on with."""
        # A cell knows no beams: they are rows of a larger batch for it.
        with apart("beams"):
            rows, held = map_structure(_merged, inputs), map_structure(_merged, states.cell_states)
        out, cells = self.cell(rows, held, **given)
        use({"reshape2": sum(len(flatten(part)) for part in (rows, held, out, cells))})
        with apart("beams"):
            out, cells = map_structure(self._split, out), map_structure(self._split, cells)
        if self.output_fn is not None:
            out = self.output_fn(out)
        with apart("beams"):
            chosen, after = self._chosen(out, cells, states)
        use(beams_step(len(flatten(cells))))
        chosen.predicted_ids.stop_gradient = True
        return chosen, after, self._embedded(chosen.predicted_ids), after.finished

    def _chosen(self, out: Variable, cells: Any, states: Any) -> tuple[Any, Any]:
        """Return the best continuations of the beams, and their states."""
        width = out.shape[-1]
        scores = self._scores(out, states, width)
        # The best of all beams and ids together; place divided by the number of ids is the beam, the remainder the id.
        best, places = call("topk", call("reshape", scores, [-1, self.beam_size * width]), self.beam_size)
        per = call("fill_constant", [1], "int64", float(width))
        parents, ids = call("elementwise_floordiv", places, per), call("elementwise_mod", places, per)
        rows = self._rows(parents)
        done, lengths = self._gathered(call("cast", states.finished, "int64"), rows), self._gathered(states.lengths, rows)
        # A beam that was finished before grows no longer.
        lengths = call("elementwise_add", lengths, call("scale", done, -1.0, 1.0))
        end = call("fill_constant", [1], "int64", float(self.end_token))
        finished = call("logical_or", call("cast", done, "bool"), equal(ids, end))
        after = self.StateWrapper(map_structure(lambda v: self._gathered(v, rows), cells), best, finished, lengths)
        return self.OutputWrapper(best, ids, parents), after

    def _scores(self, logits: Variable, states: Any, width: int) -> Any:
        """Return sums of logarithms [batch, beam_size, ids]; what is finished goes on with the end token alone, at no cost."""
        logs = call("log", call("softmax", logits))
        ends = np.full(width, NEVER, logits.dtype)
        ends[self.end_token] = 0
        done = call("cast", states.finished, logits.dtype)
        going = call("elementwise_mul", logs, call("scale", done, -1.0, 1.0), 0)
        zero = LayerHelper("beams").one("fill_like", {"X": logs}, {"value": 0.0})
        over = call("elementwise_mul", call("elementwise_add", zero, assign(ends)), done, 0)
        return call("elementwise_add", call("elementwise_add", going, over), states.log_probs, 0)

    def _rows(self, parents: Variable) -> Any:
        """Return the row of [batch x beam_size, ...] for every parent."""
        # Where each sample's beams begin, by a running sum, since how many samples there are only a step knows.
        ones = fill_constant_batch_size_like(parents, [-1, 1], "int64", 1.0)
        sample = call("scale", call("cumsum", ones, 0, True), float(self.beam_size))
        return call("reshape", call("elementwise_add", parents, sample), [-1])

    def _gathered(self, x: Variable, rows: Variable) -> Any:
        return self._split(call("gather", _merged(x), rows))

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Return whole sequences of ids, [time, batch, beam_size], and the last states."""
        return call("gather_tree", outputs.predicted_ids, outputs.parent_ids), final_states


def _tiled(x: Variable, count: int) -> Any:
    """Return [batch, count, ...] of [batch, ...]."""
    return call("expand", call("unsqueeze", x, [1]), [1, count] + [1] * (len(x.shape) - 1))


def _merged(x: Variable) -> Any:
    """Return [batch x beams, ...] of [batch, beams, ...]."""
    return _with_front(x, 2, [-1])


def _with_front(x: Variable, count: int, sizes: list[int]) -> Any:
    """Reshape the first axes of a variable, however long the others are."""
    rest = x.shape[count:]
    if min(rest, default=1) >= 0:
        return call("reshape", x, [*sizes, *rest])
    # A reshape keeps open sizes only where they have their places: these go in front meanwhile.
    behind = [*range(count, len(x.shape)), *range(count)]
    made = call("reshape", call("transpose", x, behind), [0] * len(rest) + sizes)
    return call("transpose", made, [*range(len(rest), len(made.shape)), *range(len(rest))])


def beam_search(  # noqa: PLR0913, PLR0917 (fluid's arguments)
    pre_ids: Variable,
    pre_scores: Variable,
    ids: Variable | None,
    scores: Variable,
    beam_size: int,
    end_id: int,
    level: int = 0,
    is_accumulated: bool = True,
    name: str | None = None,
    return_parent_idx: bool = False,
) -> Any:
    """Choose the best continuations of the sequences of every sample; see the op. Scores have two levels of sequences."""
    inputs = {"pre_ids": pre_ids, "pre_scores": pre_scores, "ids": ids, "scores": scores}
    attrs = {"level": level, "beam_size": beam_size, "end_id": end_id, "is_accumulated": is_accumulated}
    with raised_as(FluidValueError):
        made = LayerHelper("beam_search", name).op("beam_search", inputs, attrs, ("selected_ids", "selected_scores", "parent_idx"))
    return tuple(made) if return_parent_idx else tuple(made[:2])


def beam_search_decode(ids: TensorArray, scores: TensorArray, beam_size: int, end_id: int, name: str | None = None) -> Any:
    """Follow the choices of all steps of beam_search back; return ids and scores of whole sequences, with two levels of sequences.

    Raises:
        NotThereYet: a loop without beam_search writes the arrays.
    """
    inputs = {"Ids": _steps(ids), "Scores": _steps(scores)}
    attrs = {"beam_size": beam_size, "end_id": end_id}
    with raised_as(FluidValueError):
        outs = LayerHelper("beam_search_decode", name).op("beam_search_decode", inputs, attrs, ("SentenceIds", "SentenceScores"))
    return tuple(outs)


def _steps(array: TensorArray) -> list[Variable]:
    """Return the tensors of an array, or the list of them that a loop has made."""
    if array.rows is None:
        return [array.items[i] for i in sorted(array.items)]
    if not array.listed:
        raise NotThereYet("beam_search_decode of arrays that a While without beam_search writes", hint="write its steps out")
    return [array.rows]


__all__ = ["BeamSearchDecoder", "beam_search", "beam_search_decode"]
