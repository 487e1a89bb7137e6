"""Decoding step by step: decoders, helpers that choose a step's input, and dynamic_decode, which repeats a decoder.

The rounds are those of a `while`, which has a bound: `max_step_num`, the steps of a TrainingHelper's inputs, or MOST_STEPS.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from pe_cli.layers.control.loops import collecting_while
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import OPEN
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.ops import equal
from pe_cli.paddle.fluid.layers.original_counts import decoding_begins, decoding_ends, finished_state
from pe_cli.paddle.fluid.layers.tensor import fill_constant_batch_size_like
from pe_cli.paddle.fluid.layers.utils import flatten, like, map_structure
from pe_cli.paddle.fluid.naming import apart, plainly, use
from pe_cli.program.ir import Variable
from pe_cli.program.outline import Outline

#: Steps at most where nobody says how many.
MOST_STEPS = 256


class Decoder:
    """What dynamic_decode repeats: `initialize` gives the first inputs, states and what is finished, `step` the next ones."""

    #: Steps at most, where the decoder knows.
    max_steps: int | None = None

    def initialize(self, inits: Any) -> tuple[Any, Any, Variable]:
        """Return the first step's inputs, its states, and a bool variable of what is finished.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no initialize: define it")

    def step(self, time: Variable, inputs: Any, states: Any, **given: Any) -> tuple[Any, Any, Any, Variable]:
        """Append a step; return its outputs, and the next states, inputs and what is finished.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no step: define it")

    def finalize(self, outputs: Any, final_states: Any, sequence_lengths: Variable) -> tuple[Any, Any]:
        """Return what is made of the outputs of all steps and of the last states: both as they are, unless a class says otherwise."""
        return outputs, final_states

    @property
    def tracks_own_finished(self) -> bool:
        """Whether `step` gives all that is finished, and not only what became so in this step."""
        return False


class DecodeHelper:
    """What a BasicDecoder asks: `sample` chooses of a step's outputs, `next_inputs` makes the next step's input of that."""

    def initialize(self) -> tuple[Any, Variable]:
        """Return the first step's inputs and what is finished.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no initialize: define it")

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Return what is chosen.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no sample: define it")

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Return what is finished, the next inputs and the next states.

        Raises:
            NotImplementedError: the class does not define it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no next_inputs: define it")


class TrainingHelper(DecodeHelper):
    """Feeds a decoder with given inputs, step by step.

    Args:
        inputs: [batch, time, ...], or a structure of those.
        sequence_length: [batch] int32 or int64.
        time_major: inputs are [time, batch, ...].
    """

    def __init__(self, inputs: Any, sequence_length: Variable, time_major: bool = False) -> None:
        self.inputs, self.sequence_length, self.time_major = inputs, sequence_length, time_major
        with apart("training_helper"):
            self._rows = map_structure(lambda x: x if time_major else _swapped(x), inputs)
        use({"pad": len(flatten(inputs))})
        steps = flatten(self._rows)[0].shape[0]
        self.max_steps = steps if steps > 0 else None

    def initialize(self) -> tuple[Any, Variable]:
        """Return the first step of the inputs."""
        use({f"{x.name}_slice": 1 for x in flatten(self.inputs)})
        with apart("training_helper"):
            first = map_structure(lambda x: call("squeeze", call("slice", x, [0], [0], [1]), [0]), self._rows)
        # A sequence without rows is finished before it begins.
        return first, equal(self.sequence_length, call("fill_constant", [1], self.sequence_length.dtype, 0.0))

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Return the place of the largest output of every sample."""
        return call("argmax", outputs, -1)  # type: ignore[no-any-return]

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Return the next step of the inputs; zeros behind the last one."""
        many = len(flatten(self.inputs))
        use({"cast": 1 + (self.sequence_length.dtype != "int32"), "tmp": 1 + many, "less_equal": 1, "slice": many, "squeeze": many})
        with apart("training_helper"):
            return self._following(time, states)

    def _following(self, time: Variable, states: Any) -> tuple[Variable, Any, Any]:
        after = call("scale", time, 1.0, 1.0)
        lengths = self.sequence_length
        finished = call("less_equal", lengths, after if lengths.dtype == after.dtype else call("cast", after, lengths.dtype))

        def step_of(x: Variable) -> Any:
            if x.shape[0] > 0:
                last = call("fill_constant", [1], "int64", float(x.shape[0] - 1))
            else:  # what is fed says how many steps there are
                last = call("scale", call("cast", call("slice", call("shape", x), [0], [0], [1]), "int64"), 1.0, -1.0)
            # Behind the last row the last one is read, which exists, and then set to 0.
            row = call("squeeze", call("gather", x, call("elementwise_min", after, last)), [0])
            inside = call("cast", call("less_equal", after, last), x.dtype)
            return call("elementwise_mul", row, inside)

        return finished, map_structure(step_of, self._rows), states


class GreedyEmbeddingHelper(DecodeHelper):
    """Feeds a decoder with the embedding of what it found most likely.

    Args:
        embedding_fn: makes inputs of ids.
        start_tokens: [batch] int64.
        end_token: id that ends a sequence.
    """

    def __init__(self, embedding_fn: Any, start_tokens: Variable, end_token: int) -> None:
        self.embedding_fn, self.start_tokens = embedding_fn, start_tokens
        self.end_token = call("fill_constant", [1], "int64", float(end_token))

    def initialize(self) -> tuple[Any, Variable]:
        """Return the embedding of the first ids; nothing is finished."""
        none = fill_constant_batch_size_like(self.start_tokens, [-1], "bool", 0.0)
        return self.embedding_fn(self.start_tokens), none

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Return the place of the largest output of every sample."""
        return call("argmax", outputs, -1)  # type: ignore[no-any-return]

    def next_inputs(self, time: Variable, outputs: Variable, states: Any, sample_ids: Variable) -> tuple[Variable, Any, Any]:
        """Return the embedding of what was chosen; the end token finishes a sequence."""
        return equal(sample_ids, self.end_token), self.embedding_fn(sample_ids), states


class SampleEmbeddingHelper(GreedyEmbeddingHelper):
    """Feeds a decoder with the embedding of what is drawn by the probabilities that it gives.

    Args:
        embedding_fn: makes inputs of ids.
        start_tokens: [batch] int64.
        end_token: id that ends a sequence.
        softmax_temperature: outputs are divided by it; None for 1.
        seed: of the draws; None for the program's.

    Raises:
        FluidValueError: softmax_temperature is not above 0.
    """

    def __init__(
        self, embedding_fn: Any, start_tokens: Variable, end_token: int, softmax_temperature: float | None = None, seed: int | None = None
    ) -> None:
        super().__init__(embedding_fn, start_tokens, end_token)
        if softmax_temperature is not None and not softmax_temperature > 0:
            raise FluidValueError(f"SampleEmbeddingHelper: softmax_temperature is {softmax_temperature}", hint="a number above 0")
        use({"fill_constant": int(softmax_temperature is not None)})
        self.softmax_temperature, self.seed = softmax_temperature, seed

    def sample(self, time: Variable, outputs: Variable, states: Any) -> Variable:
        """Return a place of every sample's outputs, drawn: the first up to which their probabilities exceed a uniform number."""
        use({"tmp": int(self.softmax_temperature is not None), "softmax": 1, "sampling_id": 1})
        with apart("sample_helper"):
            return self._drawn(outputs)

    def _drawn(self, outputs: Variable) -> Variable:
        # Dividing logits by the temperature before the softmax sharpens or flattens the distribution.
        logits = outputs if self.softmax_temperature is None else call("scale", outputs, 1.0 / self.softmax_temperature)
        sums = call("cumsum", call("softmax", logits), 1)
        draw = call("uniform_random_batch_size_like", outputs, [-1, 1], outputs.dtype, 0, 0, 0.0, 1.0, self.seed or 0)
        width = outputs.shape[1]
        # How many running sums lie at or below the number drawn is the place that is drawn; the last one catches a sum that rounding left
        # below 1.
        below = call("reduce_sum", call("cast", call("less_equal", sums, call("expand", draw, [1, width])), outputs.dtype), 1)
        last = call("fill_constant", [1], outputs.dtype, float(width - 1))
        return call("cast", call("elementwise_min", below, last), self.start_tokens.dtype)  # type: ignore[no-any-return]


class BasicDecoder(Decoder):
    """A cell whose outputs a helper turns into the next inputs.

    Args:
        cell: one step.
        helper: chooses.
        output_fn: applied to the outputs of the cell.
    """

    OutputWrapper = namedtuple("OutputWrapper", ("cell_outputs", "sample_ids"))

    def __init__(self, cell: Any, helper: Any, output_fn: Any = None) -> None:
        self.cell, self.helper, self.output_fn = cell, helper, output_fn
        self.max_steps = getattr(helper, "max_steps", None)

    def initialize(self, initial_cell_states: Any) -> tuple[Any, Any, Variable]:
        """Return the helper's first inputs, the given states, and what is finished."""
        inputs, finished = self.helper.initialize()
        return inputs, initial_cell_states, finished

    def step(self, time: Variable, inputs: Any, states: Any, **given: Any) -> tuple[Any, Any, Any, Variable]:
        """Append a step of the cell, and what the helper makes of it."""
        outputs, after = self.cell(inputs, states, **given)
        if self.output_fn is not None:
            outputs = self.output_fn(outputs)
        chosen = self.helper.sample(time=time, outputs=outputs, states=after)
        chosen.stop_gradient = True
        finished, following, after = self.helper.next_inputs(time=time, outputs=outputs, states=after, sample_ids=chosen)
        return self.OutputWrapper(outputs, chosen), after, following, finished


class _Steps(Outline):
    """Marks where the steps of a decoder begin."""

    def outside(self, made: Any) -> Any:
        raise NotThereYet("arrays at places that only a step knows are not there yet in a decoder's step", hint="use its states")


def dynamic_decode(
    decoder: Any,
    inits: Any = None,
    max_step_num: int | None = None,
    output_time_major: bool = False,
    impute_finished: bool = False,
    is_test: bool = False,
    return_length: bool = False,
    **given: Any,
) -> Any:
    """Repeat the steps of a decoder until all is finished.

    Args:
        decoder: of the steps.
        inits: what its `initialize` gets.
        max_step_num: a step begins while no more than that many are done, as in the original: there are max_step_num + 1 at most.
            None: as many as a TrainingHelper has inputs for, else an error after MOST_STEPS.
        output_time_major: outputs are [time, batch, ...].
        impute_finished: what is finished keeps its states.
        is_test: without effect: here memory is planned, and what gradients do not need is not kept.
        return_length: return the lengths of sequences, too.
        given: passed on to `step`.

    Returns:
        Outputs, [batch, time, ...] each, the last states, and with return_length the lengths, int64.
    """
    inputs, states, finished = decoder.initialize(inits)
    many, limited = (len(flatten(inputs)), len(flatten(states))), max_step_num is not None
    use(decoding_begins(*many, limited=limited, is_test=is_test))
    with apart("dynamic_decode"):
        start = call("fill_constant", [1], "int64", 0.0)
        lengths = call("scale", call("cast", finished, "int64"), 0.0)
    named: dict[str, Any] = {}
    parts = (start, finished, lengths, inputs, states)

    def goes_on(held: list[Variable]) -> Variable:
        time, done = held[:2]
        # All are finished where even the least of the flags, 0 or 1, is 1.
        more = call("logical_not", call("cast", call("reduce_min", call("cast", done, "float32")), "bool"))
        if max_step_num is None:
            return more  # type: ignore[no-any-return]
        return call("logical_and", more, call("less_equal", time, call("fill_constant", [1], "int64", float(max_step_num))))  # type: ignore[no-any-return]

    def body(held: list[Variable]) -> tuple[list[Variable], list[Variable]]:
        time, done, length, now, state = like(parts, iter(held))
        with plainly():
            out, after, following, done_now = decoder.step(time, now, state, **given)
        named["out"] = out
        # Beams change their places, so a flag of this step may belong to another sequence than that of the last: the decoder keeps both
        # itself.
        if decoder.tracks_own_finished:
            length = getattr(after, "lengths", length)
        else:
            done_now = call("logical_or", done_now, done)
            length = call("elementwise_add", length, call("cast", call("logical_not", done), "int64"))
            if impute_finished:
                after = map_structure(lambda old, new: _kept(old, new, done), state, after)
        for v in flatten(state) if impute_finished else ():
            use(finished_state(v.dtype))
        use(decoding_ends(*many, len(flatten(out)), limited=limited, is_test=is_test))
        return flatten([call("scale", time, 1.0, 1.0), done_now, length, following, after]), flatten(out)

    # One more, since the step number is compared after the step.
    bound = MOST_STEPS if max_step_num is None else max_step_num + 1
    if max_step_num is None and getattr(decoder, "max_steps", None):
        bound = decoder.max_steps
    # Ops in a decoder's step belong to its loop, as those in a While do.
    OPEN.append(_Steps(default_main_program().global_block()))
    try:
        with raised_as(FluidValueError), apart("dynamic_decode"):
            finals, rows, count = collecting_while(goes_on, body, flatten(parts), bound=bound)
    finally:
        OPEN.pop()
    _, _, lengths, _, final_states = like(parts, iter(finals))
    with apart("dynamic_decode"):
        helper = LayerHelper("dynamic_decode")
        # Collected rows have room for the bound; the first `count` are those of steps that ran.
        outputs = like(named["out"], iter([helper.one("first_rows", {"X": r, "Count": count}) for r in rows]))
    outputs, final_states = decoder.finalize(outputs, final_states, lengths)
    if not output_time_major:
        outputs = map_structure(_swapped, outputs)
    return (outputs, final_states, lengths) if return_length else (outputs, final_states)


def _swapped(x: Variable) -> Variable:
    """Return a variable with its first two axes in the other order."""
    made: Variable = call("transpose", x, [1, 0, *range(2, len(x.shape))])
    return made


def _kept(old: Variable, new: Variable, done: Variable) -> Any:
    """Return the old value where something is finished, else the new one."""
    kind = new.dtype if new.dtype in ("float32", "float64") else "float32"
    mask = call("cast", done, kind)
    mask.stop_gradient = True
    before, after = (v if v.dtype == kind else call("cast", v, kind) for v in (old, new))
    kept = call("elementwise_mul", before, mask, 0)
    made = call("elementwise_add", kept, call("elementwise_mul", after, call("scale", mask, -1.0, 1.0), 0))
    return made if new.dtype == kind else call("cast", made, new.dtype)


__all__ = [
    "BasicDecoder", "DecodeHelper", "Decoder", "GreedyEmbeddingHelper", "SampleEmbeddingHelper", "TrainingHelper", "dynamic_decode",
]  # fmt: skip
