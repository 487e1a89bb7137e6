"""fluid.contrib.decoder.beam_search_decoder: a cell whose step is written once, for a decoder that learns and for one that searches."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, Protocol

from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet
from pe_cli.paddle.fluid import layers
from pe_cli.program.ir import Variable


class InitState:
    """What a state of a cell begins with.

    Args:
        init: the state itself, [sequences, width].
        shape: of a constant that stands for it; its first size is that of init_boot.
        value: of that constant.
        init_boot: any variable with as many rows.
        need_reorder: the rows follow the order of sequences as they are fed, and not that of their lengths: see DynamicRNN.memory.
        dtype: of the constant.

    Raises:
        FluidValueError: neither init nor init_boot; a ValueError.
    """

    def __init__(
        self, init: Any = None, shape: Any = None, value: float = 0.0, init_boot: Any = None, need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        if init is None and init_boot is None:
            raise FluidValueError("InitState needs init or init_boot", hint="init_boot is any variable with a row for each sequence")
        made = layers.fill_constant_batch_size_like(input=init_boot, value=value, shape=shape, dtype=dtype) if init is None else init
        self.value: Any = made
        self.need_reorder = need_reorder


class _Decoder(Protocol):
    """What a cell asks of the decoder that it is in."""

    def begin_state(self, name: str, init: InitState) -> Any:
        """Return a state of the last step."""

    def keep_state(self, name: str, value: Any) -> None:
        """Hand a state on to the next step."""


class StateCell:
    """The states of a recurrent cell, its inputs, and the function that makes one step of them.

    Args:
        inputs: name -> variable, or None where every step sets it.
        states: name -> InitState.
        out_state: name of the state that is the cell's output.
        name: without effect.

    Raises:
        FluidValueError: a state that is no InitState, or an out_state that is none of them; a ValueError.
    """

    def __init__(self, inputs: Mapping[str, Any], states: Mapping[str, InitState], out_state: str, name: str | None = None) -> None:
        wrong = [state for state, init in states.items() if not isinstance(init, InitState)]
        if wrong or out_state not in states:
            raise FluidValueError(f"StateCell: out_state is '{out_state}', states are {', '.join(states)}", hint="each an InitState")
        self.inputs, self.states, self._out = dict(inputs), dict(states), out_state
        self._decoder: _Decoder | None = None
        self._now: dict[str, Any] = {}
        self._update: Callable[[StateCell], Any] | None = None

    def enter(self, decoder: _Decoder) -> None:
        """Become the cell of a decoder.

        Raises:
            FluidValueError: it is another's; a ValueError.
        """
        if self._decoder is not None:
            raise FluidValueError("StateCell: it is in a decoder already", hint="a cell serves one decoder after the other")
        self._decoder, self._now = decoder, {}

    def leave(self) -> None:
        """Be free for another decoder."""
        self._decoder = None

    def get_state(self, state_name: str) -> Any:
        """Return a state as it is now.

        Raises:
            FluidValueError: there is none of that name, or the cell is in no decoder; a ValueError.
        """
        if self._decoder is not None and not self._now:
            self._now = {name: self._decoder.begin_state(name, init) for name, init in self.states.items()}
        if state_name not in self._now:
            raise FluidValueError(f"StateCell: there is no state '{state_name}' now", hint=f"in a decoder: {', '.join(self.states)}")
        return self._now[state_name]

    def set_state(self, state_name: str, state_value: Any) -> None:
        """Give a state another value."""
        self._now[state_name] = state_value

    def get_input(self, input_name: str) -> Any:
        """Return an input of this step.

        Raises:
            FluidValueError: there is none of that name, or nothing set it; a ValueError.
        """
        found = self.inputs.get(input_name)
        if found is None:
            raise FluidValueError(f"StateCell: there is no input '{input_name}' now", hint="compute_state sets inputs")
        return found

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Register the function that makes one step of the states: a decorator."""
        self._update = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Any]) -> None:
        """Set inputs, and make one step.

        Raises:
            FluidValueError: an input that the cell does not have, or no function for the step; a ValueError.
        """
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown or self._update is None:
            wrong = f"there is no input '{unknown[0]}'" if unknown else "nothing says what a step is"
            raise FluidValueError(f"StateCell: {wrong}", hint=f"inputs are {', '.join(self.inputs)}; @cell.state_updater")
        self.get_state(self._out)
        self.inputs.update(inputs)
        self._update(self)

    def update_states(self) -> None:
        """Hand all states on to the next step.

        Raises:
            FluidValueError: the cell is in no decoder; a ValueError.
        """
        self.get_state(self._out)
        if self._decoder is None:
            raise FluidValueError("StateCell: update_states outside of a decoder", hint="call it in the decoder's block")
        for name, value in self._now.items():
            self._decoder.keep_state(name, value)

    def out_state(self) -> Any:
        """Return the state that is the cell's output."""
        return self.get_state(self._out)


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
        self._cell, self._words, self._wide, self._given = state_cell, target_dict_dim, word_dim, dict(input_var_dict or {})
        self._topk, self._sparse, self._most, self._beams, self._end = topk_size, sparse_emb, max_len, beam_size, end_id
        self._begins = {"ids": init_ids, "scores": init_scores}
        self._arrays: dict[str, Any] = {}
        self._kept: dict[str, Any] = {}
        self._counter: Any = None
        self._done = False
        state_cell.enter(self)

    def begin_state(self, name: str, init: InitState) -> Any:
        """Return what the last step has written."""
        return layers.array_read(self._arrays[f"state {name}"], self._counter)

    def keep_state(self, name: str, value: Any) -> None:
        """Let the step write a state at its end."""
        self._kept[f"state {name}"] = value

    def decode(self) -> None:
        """Append the search.

        Raises:
            FluidValueError: it is there already, or a given input is none of the cell's; a ValueError.
        """
        unknown = [name for name in self._given if name not in self._cell.inputs]
        if self._done or unknown:
            raise FluidValueError(f"BeamSearchDecoder: {f'the cell has no input {unknown[0]}' if unknown else 'a second decode'}")
        begins = {
            **self._begins,
            **{f"input {name}": v for name, v in self._given.items()},
            **{f"state {name}": init.value for name, init in self._cell.states.items()},
        }
        limit, counter = layers.fill_constant([1], "int64", self._most), layers.zeros([1], "int64")
        self._counter = counter
        for name, v in begins.items():
            self._arrays[name] = layers.array_write(v, i=counter)
        go = layers.less_than(counter, limit)
        loop = layers.While(go)
        with loop.block():
            ended = self._step()
            layers.increment(counter, 1, in_place=True)
            for name, v in self._kept.items():
                layers.array_write(v, array=self._arrays[name], i=counter)
            layers.logical_and(layers.less_than(counter, limit), layers.logical_not(ended), out=go)
        self._done = True
        self._cell.leave()

    def _step(self) -> Any:
        """Append one step; return whether no sentence goes on."""
        cell = self._cell
        ids, scores = (layers.array_read(self._arrays[name], self._counter) for name in ("ids", "scores"))
        word = layers.embedding(ids, size=[self._words, self._wide], dtype="float32", is_sparse=self._sparse)
        inputs = {}
        for name in self._given:
            last = layers.array_read(self._arrays[f"input {name}"], self._counter)
            inputs[name] = layers.sequence_expand(last, scores)
            self._kept[f"input {name}"] = inputs[name]
        for name in cell.states:
            cell.set_state(name, layers.sequence_expand(cell.get_state(name), scores))
        cell.compute_state(inputs={name: inputs.get(name, word) for name in cell.inputs})
        chances = layers.fc(layers.lod_reset(cell.out_state(), scores), size=self._words, act="softmax")
        best, places = layers.topk(chances, k=self._topk)
        total = layers.elementwise_add(layers.log(best), layers.reshape(scores, [-1]), axis=0)
        chosen, chosen_scores = layers.beam_search(ids, scores, places, total, self._beams, self._end, level=0)
        cell.update_states()
        self._kept |= {"ids": chosen, "scores": chosen_scores}
        return layers.is_empty(chosen)

    def __call__(self) -> Any:
        """Return the sentences and their scores, as `beam_search_decode` gives them.

        Raises:
            FluidValueError: before decode; a ValueError.
        """
        if not self._done:
            raise FluidValueError("BeamSearchDecoder: its sentences are there behind decode()")
        return layers.beam_search_decode(self._arrays["ids"], self._arrays["scores"], self._beams, self._end)

    def _of_ones_own(self, *args: Any, **given: Any) -> NoReturn:
        raise NotThereYet("BeamSearchDecoder: a block of one's own is not there", hint="decode(), or beam_search in a fluid.layers.While")

    block = read_array = update_array = early_stop = _of_ones_own


__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder"]
