"""Makes layers of a program's operators: of each the candidate that stands for most of them and appends just these."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.config.block_expansion import MAX_LAYERS
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.io.fluid.operator_reader import LayerCall
from pe_cli.io.fluid.reading import Loaded
from pe_cli.layers.define.registry import discover
from pe_cli.program.ir import Operator, Parameter, Variable
from pe_cli.program.param_attr import ParamAttr
from pe_cli.session.importing.paddle.candidates import Candidate, Given, Named, candidates, short, tidied
from pe_cli.session.importing.paddle.matching import outputs_of, variables

Array = np.ndarray[Any, Any]
_PART = re.compile(r"(.+)\.tmp_\d+")
_LONGEST = 200


class Emitter:
    """The layers of a program.

    Args:
        loaded: the program.
        fetches: variables that are kept.
        partial: operators without a layer end the model, and are no error.
        loop: makes layers of a loop.

    Attributes:
        feeds, layers, blocks: as a model file has them.
        inside: first result of a loop -> layers that were called for the operators of a step.
        comments: name -> shape.
        parameters: what lives between steps and is read, in order.
        arrays: values of constants, which are parameters that are not trained.
        missing: what has no layer, and what needs that.
        frontier: what operators without a layer read.
        failures: why, for each operator without a layer.
    """

    def __init__(
        self, loaded: Loaded, fetches: Sequence[str], *, partial: bool, loop: Callable[[Emitter, Operator], None] | None = None
    ) -> None:
        self.block, self.partial, self.inside, self.loop = loaded.program.main_block, partial, loaded.inside, loop
        self.blocks: dict[str, dict[str, Any]] = {}
        self.feeds: dict[str, dict[str, Any]] = {}
        self.layers: dict[str, dict[str, Any]] = {}
        self.comments: dict[str, str] = {}
        self.parameters: dict[str, None] = {}
        self.arrays: dict[str, Array] = {}
        self.missing: set[str] = set()
        self.frontier: dict[str, None] = {}
        self.failures: list[PeError] = []
        self._calls = {call.begin: call for call in loaded.calls if call.end > call.begin}
        self._refs: dict[str, str] = {}
        self.taken = {v.name for v in self.block.vars.values() if v.persistable}
        # What a block of a loop calls its step.
        self.taken |= {"input"} if any(op.type == "scan" for op in self.block.ops) else set()
        self._needed = self._what_is_needed(fetches)
        self._fetches = set(fetches)
        self._uses = Counter(name for i in self._needed for name in self.block.ops[i].input_names())
        self._uses.update(fetches)

    def run(self) -> None:
        """Make the feeds and all layers.

        Raises:
            PeError: an operator without a layer (exit code 3), unless the model may be partial.
        """
        for v in self.block.vars.values():
            if v.is_data and self._uses[v.name]:
                self._feed(v)
        at = 0
        while at < len(self.block.ops):
            at = self._next(at)

    def ref(self, name: str) -> str:
        """Return what a variable is called in the model file.

        Raises:
            PeError: DATA; nothing before gives it.
        """
        if name not in self._refs:
            raise PeError(f"'{name}' is read, and no layer before gives it", hint="save the model anew", code=ExitCode.DATA)
        return self._refs[name]

    def call(self, name: str, ref: str) -> None:
        """Let a variable be called so in the model file."""
        self._refs[name] = ref

    def reference(self, name: str) -> str | None:
        """Return what a variable is called in the model file, None where it is not there."""
        return self._refs.get(name)

    # --- operators ----------------------------------------------------------------------------------------------------

    def _what_is_needed(self, fetches: Iterable[str]) -> set[int]:
        """Return the numbers of the operators that lead to what is fetched."""
        wanted = set(fetches)
        found: set[int] = set()
        for i in reversed(range(len(self.block.ops))):
            op = self.block.ops[i]
            if not wanted.isdisjoint(op.output_names()):
                found.add(i)
                wanted.update(op.input_names())
        return found

    def _next(self, at: int) -> int:
        """Make a layer of what begins at an operator; return the number of the next one."""
        call = self._calls.get(at)
        end = call.end if call is not None else at + 1
        if self._needed.isdisjoint(range(at, end)):
            return end
        ops = self.block.ops[at:end]
        lost = [name for op in ops for name in op.input_names() if name in self.missing]
        if lost:
            self._lose(at, end)
            return end
        if ops[0].type == "scan" and self.loop is not None:
            self._repeat(at)
            return end
        if call is None and (self._is_another_name(at) or self._is_constant(at)):
            return end
        given = Given(self.block, at, self._uses)
        for one in [_called(call)] if call is not None else candidates(given):
            tidy = tidied(one)
            outputs = outputs_of(tidy, self.block.ops[at : at + one.count], self.block, self._uses)
            if outputs is not None:
                self._layer(tidy, outputs, at)
                return at + one.count
        self._fail(at, end)
        return end

    def _repeat(self, at: int) -> None:
        """Make layers of a loop."""
        assert self.loop is not None
        try:
            self.loop(self, self.block.ops[at])
        except PeError as error:
            made = self.block.ops[at].output_names()[0]
            failure = PeError(f"the loop recurrent, which makes '{made}': {error.message}", hint=error.hint, code=ExitCode.DATA)
            if not self.partial:
                raise failure from None
            self.failures.append(failure)
            self._lose(at, at + 1)

    def _is_another_name(self, at: int) -> bool:
        """Take note of an operator that passes its input on; return whether it is one."""
        op = self.block.ops[at]
        if op.type == "scale" and not (op.attrs["scale"] == 1.0 and op.attrs["bias"] == 0.0):
            return False
        if op.type not in ("assign", "scale") or [slot for slot, names in op.inputs.items() if names] != ["X"]:
            return False
        x, out = self.block.vars[op.inputs["X"][0]], self.block.vars[op.outputs["Out"][0]]
        # What is fed and fetched without a change in between needs a layer of its own.
        if x.persistable or out.persistable or (x.is_data and out.name in self._fetches):
            return False
        self._refs[out.name] = self.ref(x.name)
        return True

    def _is_constant(self, at: int) -> bool:
        """Keep the numbers of an operator that makes a variable of them; return whether it is one."""
        op = self.block.ops[at]
        if op.type != "assign_value":
            return False
        v = self.block.vars[op.outputs["Out"][0]]
        try:
            values = np.asarray(op.attrs["values"], v.dtype).reshape(v.shape)
        except (ValueError, OverflowError):  # as many numbers as it has no room for, or of another size
            return False
        if values.size and (values == values.flat[0]).all():
            value = self._written(short(float(values.flat[0])))
            layer = {"type": "fill_constant", "shape": list(v.shape), "dtype": v.dtype, "value": value}
            self._refs[v.name] = self.keep(v.name, layer)
            return True
        self._refs[v.name] = self.keep(v.name, self._table(v, trained=False))
        self.arrays[v.name] = values
        return True

    def _fail(self, at: int, end: int) -> None:
        op = self.block.ops[at]
        names = [name for one in self.block.ops[at:end] for name in one.output_names()]
        fresh = next((name for name in names if name in self._uses), "nothing that is read")
        error = PeError(
            f"the operator {op.type}, which makes '{fresh}', has no layer with its inputs and attributes",
            hint=nearest(op.type), code=ExitCode.DATA,
        )  # fmt: skip
        if not self.partial:
            raise error
        self.failures.append(error)
        self._lose(at, end)

    def _lose(self, at: int, end: int) -> None:
        """Take note of operators that are left out."""
        for op in self.block.ops[at:end]:
            self.frontier.update(dict.fromkeys(name for name in op.input_names() if name in self._refs and name not in self.parameters))
            self.missing.update(op.output_names())

    # --- the model ----------------------------------------------------------------------------------------------------

    def key(self, wanted: str, type_: str = "") -> str:
        """Return a name for a layer or feed that nothing else has, and that is like a wanted one: `fc_0` or `fc_0_act` of `fc_0.tmp_2`."""
        part = _PART.fullmatch(wanted)
        tries = [_plain(part[1]), _plain(f"{part[1]}_{type_}")] if part and type_ else []
        text = _plain(wanted)
        further = (f"{text}_{i}" for i in itertools.count(2))
        found = next(name for name in itertools.chain(tries, [text], further) if name not in self.taken)
        self.taken.add(found)
        return found

    def _feed(self, v: Variable) -> None:
        name = self._refs[v.name] = self.key(v.name)
        batch = bool(v.shape) and v.shape[0] == -1
        declared: dict[str, Any] = {"shape": list(v.shape[1:] if batch else v.shape), "dtype": v.dtype}
        if v.lod_level and batch:
            declared["lod_level"] = v.lod_level
        self.feeds[name] = declared if batch else {**declared, "replicate": True}

    def _layer(self, one: Candidate, outputs: Sequence[str], at: int) -> None:
        for op in self.block.ops[at : at + one.count]:
            # What an operator before has computed is read as that, whatever value it has between steps.
            fresh = (name for name in op.input_names() if name not in self._refs or name in self.parameters)
            self.parameters.update(dict.fromkeys(name for name in fresh if self.block.vars[name].persistable))
        for value in one.args.values():
            for v in variables(value):
                if v.persistable and v.name not in self._refs:
                    self.parameter(v)
        wanted = next((name for name in outputs if name), one.layer)
        written = {name: self._written(value) for name, value in one.args.items()}
        key = self.keep(wanted, {"type": one.layer, **written})
        for i, name in enumerate(outputs):
            if name:
                self._refs[name] = key if len(outputs) == 1 else f"{key}.{i}"
        self.comments[key] = _shape(self.block.vars[wanted].shape) if wanted in self.block.vars else ""

    def parameter(self, v: Variable) -> None:
        """Make a layer that gives a parameter, for operators that read it as they read any variable."""
        self._refs[v.name] = self.keep(f"{v.name}.table", self._table(v, trained=isinstance(v, Parameter)))

    def _table(self, v: Variable, *, trained: bool) -> dict[str, Any]:
        attr: dict[str, Any] = {"name": escaped(v.name)}
        if not trained:
            attr |= {"trainable": False, "initializer": {"type": "Constant", "value": 0.0}}
        return {"type": "create_parameter", "shape": list(v.shape), "dtype": v.dtype, "attr": attr}

    def keep(self, wanted: str, layer: Mapping[str, Any]) -> str:
        """Add a layer, whose name is like a wanted one, and return it.

        Raises:
            PeError: DATA; there are more layers than a model file may have.
        """
        if len(self.layers) >= MAX_LAYERS:
            raise PeError(f"the model has more than {MAX_LAYERS:,} layers", hint="import a part of it", code=ExitCode.DATA)
        key = self.key(wanted, layer.get("type", "scan"))
        self.layers[key] = dict(layer)
        return key

    def _written(self, value: Any) -> Any:
        """Return an argument as a model file has it."""
        if isinstance(value, Variable):
            return self.ref(value.name)
        if isinstance(value, list):
            made = [self._written(one) for one in value]
            return made[0] if len(made) == 1 and isinstance(value[0], Variable) else made
        if isinstance(value, Named):
            return escaped(value.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise PeError(f"a layer is given {value}, which no model file can say", hint="save the model without it", code=ExitCode.DATA)
        return escaped(value) if isinstance(value, str) else value


def nearest(type_: str) -> str:
    """Return what to do about an operator without a layer."""
    close = did_you_mean(type_, discover())
    said = close.replace("did you mean", "the nearest layer is").rstrip("?") + "; " if close else ""
    return f"{said}--partial imports what comes before it"


def _called(call: LayerCall) -> Candidate:
    """Return the layer that was called for an operator as a candidate."""
    return Candidate(call.layer, {name: _argument(value) for name, value in call.given.items() if name != "name"}, call.end - call.begin)


def _argument(value: Any) -> Any:
    if isinstance(value, ParamAttr):
        return Named(str(value.name))
    return [_argument(one) for one in value] if isinstance(value, (list, tuple)) else value


def _plain(text: str) -> str:
    """Return a text as a name of a model file."""
    made = re.sub(r"[^A-Za-z0-9_-]+", "_", text[:_LONGEST]).strip("_-") or "value"
    return made if made[0].isalpha() else f"v_{made}"


def _shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join('batch' if i == 0 and size < 0 else '?' if size < 0 else str(size) for i, size in enumerate(sizes))}]"
