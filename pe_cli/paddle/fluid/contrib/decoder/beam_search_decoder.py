"""fluid.contrib.decoder.beam_search_decoder: a cell whose step is written once, for a decoder that learns and for one that searches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pe_cli.paddle.errors import FluidTypeError, FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.contrib.decoder.cells import InitState, StateCell
from pe_cli.paddle.fluid.layers.tensor_arrays import TensorArray, begun_with, first_of
from pe_cli.paddle.fluid.naming import use
from pe_cli.program.ir import Variable


class TrainingDecoder:
    """A cell that goes over sequences whose words are known: a DynamicRNN, with the cell's states as its memories.

    Args:
        state_cell: the cell.
        name: without effect.

    Raises:
        FluidValueError: the cell is in another decoder; a ValueError.
    """

    def __init__(self, state_cell: StateCell, name: str | None = None) -> None:
        self.dynamic_rnn = layers.DynamicRNN()
        use({"training_decoder": int(name is None)})
        self._cell, self._memories = state_cell, dict[str, Any]()
        self._inside, self._done = False, False
        state_cell.enter(self)

    def begin_state(self, name: str, init: InitState) -> Any:
        """Return a memory of the DynamicRNN."""
        self._memories[name] = self.dynamic_rnn.memory(init=init.value, need_reorder=init.need_reorder)
        return self._memories[name]

    def keep_state(self, name: str, value: Any) -> None:
        """Update a memory of the DynamicRNN."""
        self.dynamic_rnn.update_memory(self._memories[name], value)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Append inside what a step does.

        Raises:
            FluidValueError: a second block; a ValueError.
        """
        if self._inside or self._done:
            raise FluidValueError("TrainingDecoder: a second block", hint="make another decoder")
        self._inside = True
        with self.dynamic_rnn.block():
            yield
        self._inside, self._done = False, True
        self._cell.leave()

    def _in_block(self, what: str) -> None:
        if not self._inside:
            raise FluidValueError(f"TrainingDecoder: {what} outside of its block", hint="with decoder.block(): ...")

    @property
    def state_cell(self) -> StateCell:
        """The cell, in the block."""
        self._in_block("state_cell")
        return self._cell

    def step_input(self, x: Variable) -> Any:
        """Return the row of this step of a sequence."""
        self._in_block("step_input")
        return self.dynamic_rnn.step_input(x)

    def static_input(self, x: Variable) -> Any:
        """Return a variable that every step sees whole."""
        self._in_block("static_input")
        return self.dynamic_rnn.static_input(x)

    def output(self, *outputs: Variable) -> None:
        """Say what the decoder gives of every step."""
        self._in_block("output")
        self.dynamic_rnn.output(*outputs)

    def __call__(self) -> Any:
        """Return the outputs of all steps, as sequences.

        Raises:
            FluidValueError: before the end of its block; a ValueError.
        """
        if not self._done:
            raise FluidValueError("TrainingDecoder: its outputs are there behind its block")
        return self.dynamic_rnn()


class BeamSearchDecoder:
    """A cell that goes on from the words that are most likely, several at a time: a While with beam_search.

    Args:
        state_cell: the cell.
        init_ids: [sequences, 1] int64 first words, with two levels of sequences.
        init_scores: float32 of the same form: what their probabilities' logarithms begin with.
        target_dict_dim: words.
        word_dim: width of a word's vector.
        input_var_dict: name of an input of the cell -> what it is in every step; the others are the vector of the last word.
        topk_size: words of each beam that are looked at.
        sparse_emb: the gradient of the words' vectors is row-sparse.
        max_len: words of a sentence at most.
        beam_size: sentences that are followed.
        end_id: word that ends a sentence.
        name: without effect.

    Raises:
        FluidTypeError: init_ids or init_scores is no variable; a TypeError.
        FluidValueError: the cell is in another decoder; a ValueError.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (fluid's arguments)
        self, state_cell: StateCell, init_ids: Variable, init_scores: Variable, target_dict_dim: int, word_dim: int,
        input_var_dict: Mapping[str, Any] | None = None, topk_size: int = 50, sparse_emb: bool = True, max_len: int = 100,
        beam_size: int = 1, end_id: int = 1, name: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(init_ids, Variable) or not isinstance(init_scores, Variable):
            raise FluidTypeError("BeamSearchDecoder: init_ids and init_scores are variables")
        use({"beam_search_decoder": int(name is None)})
        self._state_cell, self._input_var_dict = state_cell, dict(input_var_dict or {})
        self._target_dict_dim, self._word_dim, self._sparse_emb, self._topk_size = target_dict_dim, word_dim, sparse_emb, topk_size
        self._init_ids, self._init_scores, self._most = init_ids, init_scores, max_len
        self._beam_size, self._end_id = beam_size, end_id
        self._found: dict[str, TensorArray] = {}  # ids and scores
        self._arrays: dict[str, TensorArray] = {}  # by what was read of them in a step
        self._written: list[tuple[Variable, TensorArray]] = []
        self._states: dict[str, Any] = {}
        self._counter: Any = None
        self._cond: Any = None
        self._inside, self._done = False, False
        state_cell.enter(self)

    def begin_state(self, name: str, init: InitState) -> Any:
        """Return what the last step has written."""
        self._states[name] = self.read_array(init.value)
        return self._states[name]

    def keep_state(self, name: str, value: Any) -> None:
        """Let the step write a state at its end."""
        self.update_array(self._states[name], value)

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Append inside what a step does; it reads arrays at the step's place, and its end writes them at the next one.

        Raises:
            FluidValueError: a second block; a ValueError.
        """
        if self._inside or self._done:
            raise FluidValueError("BeamSearchDecoder: a second block", hint="make another decoder")
        limit, self._counter = layers.fill_constant([1], "int64", self._most), layers.zeros([1], "int64")
        self._cond = layers.less_than(self._counter, limit)
        self._inside = True
        with layers.While(self._cond).block():
            yield
            # Behind the place that this step reads, which stays as it is.
            following = layers.scale(self._counter, 1.0, 1.0)
            for value, array in self._written:
                layers.array_write(value, array=array, i=following)
            # a step that stops the search does not count, and what it wrote is left out
            layers.assign(layers.elementwise_add(self._counter, layers.cast(self._cond, "int64")), self._counter)
            layers.logical_and(self._cond, layers.less_than(self._counter, limit), out=self._cond)
        self._inside, self._done = False, True
        self._state_cell.leave()

    def _in_block(self, what: str) -> None:
        if not self._inside:
            raise FluidValueError(f"BeamSearchDecoder: {what} outside of its block", hint="with decoder.block(): ...")

    @property
    def state_cell(self) -> StateCell:
        """The cell, in the block."""
        self._in_block("state_cell")
        return self._state_cell

    def early_stop(self) -> None:
        """End the search with this step, which does not count; in a `Switch`, where its condition holds."""
        self._in_block("early_stop")
        layers.fill_constant([1], "bool", 0, out=self._cond)

    def read_array(self, init: Variable, is_ids: bool = False, is_scores: bool = False) -> Any:
        """Return what the last step has written to an array of its own, which begins with a variable from outside.

        Args:
            init: that variable.
            is_ids: the array has the words that were chosen.
            is_scores: it has the logarithms of their probabilities.

        Raises:
            FluidTypeError: init is no variable; a TypeError.
            FluidValueError: outside of the block, or both words and probabilities; a ValueError.
        """
        self._in_block("read_array")
        if not isinstance(init, Variable):
            raise FluidTypeError(f"BeamSearchDecoder: read_array takes a variable, got {type(init).__name__}")
        if is_ids and is_scores:
            raise FluidValueError("BeamSearchDecoder: an array of ids and of scores", hint="read_array for each of them")
        array = begun_with(init)
        if is_ids or is_scores:
            self._found["ids" if is_ids else "scores"] = array
        read = layers.array_read(array, self._counter)
        self._arrays[read.name] = array
        return read

    def update_array(self, array: Variable, value: Variable) -> None:
        """Let the step write to an array at its end.

        Args:
            array: what read_array returned.
            value: what the next step reads.

        Raises:
            FluidTypeError: no variables; a TypeError.
            FluidValueError: outside of the block, or read_array did not return it; a ValueError.
        """
        self._in_block("update_array")
        if not isinstance(array, Variable) or not isinstance(value, Variable):
            raise FluidTypeError("BeamSearchDecoder: update_array takes what read_array returned, and a variable")
        if array.name not in self._arrays:
            raise FluidValueError(f"BeamSearchDecoder: '{array.name}' is of no array", hint="read_array before update_array")
        self._written.append((value, self._arrays[array.name]))

    def decode(self) -> None:
        """Append the search; a class of one's own may do it in another way, with block, read_array and update_array.

        Raises:
            FluidValueError: it is there already, or a given input is none of the cell's; a ValueError.
        """
        unknown = [name for name in self._input_var_dict if name not in self._state_cell.inputs]
        if unknown:
            raise FluidValueError(f"BeamSearchDecoder: the cell has no input {unknown[0]}")
        with self.block():
            cell = self.state_cell
            ids, scores = self.read_array(self._init_ids, is_ids=True), self.read_array(self._init_scores, is_scores=True)
            size = [self._target_dict_dim, self._word_dim]
            word = layers.embedding(ids, size=size, dtype="float32", is_sparse=self._sparse_emb)
            inputs = {}
            for name, init in self._input_var_dict.items():
                last = self.read_array(init)
                # Scores have a row for each sentence that is followed: inputs, and states below, are repeated to match.
                inputs[name] = layers.sequence_expand(last, scores)
                self.update_array(last, inputs[name])
            for name in cell.states:
                cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
            cell.compute_state(inputs={name: inputs.get(name, word) for name in cell.inputs})
            # Rows take the levels of scores, by which beam_search tells the sentences of one source apart.
            chances = layers.fc(layers.lod_reset(cell.out_state(), scores), size=self._target_dict_dim, act="softmax")
            best, places = layers.topk(chances, k=self._topk_size)
            # A sum of logarithms: the product of many probabilities would underflow.
            total = layers.elementwise_add(layers.log(best), layers.reshape(scores, [-1]), axis=0)
            chosen, chosen_scores = layers.beam_search(ids, scores, places, total, self._beam_size, self._end_id, level=0)
            cell.update_states()
            self.update_array(ids, chosen)
            self.update_array(scores, chosen_scores)
            with layers.Switch() as switch, switch.case(layers.is_empty(chosen)):
                self.early_stop()

    def __call__(self) -> Any:
        """Return the sentences and their scores, as `beam_search_decode` gives them.

        Raises:
            FluidValueError: before the end of its block, or a block without words or probabilities; a ValueError.
        """
        if not self._done:
            raise FluidValueError("BeamSearchDecoder: its sentences are there behind decode()")
        if len(self._found) < 2:
            raise FluidValueError("BeamSearchDecoder: its block reads no ids or no scores", hint="read_array(init, is_ids=True)")
        # One more than steps that count: the first words stand in front.
        count = layers.scale(self._counter, 1.0, 1.0)
        ids, scores = (first_of(self._found[name], count) for name in ("ids", "scores"))
        return layers.beam_search_decode(ids, scores, self._beam_size, self._end_id)


__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]
