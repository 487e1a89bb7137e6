"""A step of a trainer: rows come from servers, gradients go there, parameters come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.collectives.servers.client import Servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.core.errors import PeError
from pe_cli.execute.servers.gradient_queue import GradientQueue
from pe_cli.execute.servers.host import Host, Value
from pe_cli.graph.servers.blocks import does
from pe_cli.graph.servers.server_program import ROWS
from pe_cli.graph.servers.trainer_parts import Parts
from pe_cli.ops.define.lod import Leveled
from pe_cli.ops.remote.send import NOBODY
from pe_cli.program.ir import Operator, Program

Array = np.ndarray[Any, Any]
#: Bytes of an answer beside the values that were asked for.
SLACK = 1 << 20


def most_of(program: Program) -> int:
    """Return the bytes of an answer to a trainer, at most."""
    # Values and the numbers of their rows, and as much again for the frame: a server that answers more is not believed.
    return 2 * sum(v.type.nbytes for v in program.vars.values() if v.type.known) + SLACK


class Step:
    """A step of a trainer.

    Args:
        program: the whole.
        cut: its parts.
        host: values that live between steps, and what computes.
        servers: connections; None for a program that talks to no server by itself.
        outbox: sends gradients and takes parameters beside the training; None where each step does that itself.
        weight: factor on all gradients that are sent, no unit: for a trainer whose share of a batch is not as large as the others'.
    """

    def __init__(
        self, program: Program, cut: Parts, host: Host, servers: Servers | None, weight: float = 1.0, outbox: GradientQueue | None = None
    ) -> None:
        self._weight, self._outbox = weight, outbox
        self._block, self._cut, self._host = program.main_block, cut, host
        self._connections = servers
        self._values: dict[str, Value] = {}
        self._sparse: dict[str, tuple[Array, Array]] = {}
        self._pushes: dict[str, dict[str, Array]] = {}
        self._pulls: dict[str, list[str]] = {}
        self._taken: dict[str, Array] = {}

    @property
    def _servers(self) -> Servers:
        assert self._connections is not None, "only programs with servers talk to them"
        return self._connections

    def run(self, fed: Mapping[str, Value], names: Sequence[str]) -> dict[str, Value]:
        """Run the step; return what is fetched."""
        if self._outbox is not None:
            self._arrive()
        self._values = dict(fed)
        # Lookups need ids that earlier stages compute: a stage runs as soon as its rows are there.
        for lookups, program in self._cut.stages:
            for op in lookups:
                self._look_up(op)
            self._compute(program, [*names, *(self._cut.raw.get(n, n) for n in self._cut.needed)])
        self._values.update({n: self._values[raw] for n, raw in self._cut.raw.items()})
        for op in self._cut.talk:
            getattr(self, f"_{op.type}")(op)
        # A receive sends first; without any receive the gradients would stay here.
        self._push()  # where no parameter comes back, as of tables whose rows are looked up
        self._take()
        return {n: self._fetched(n) for n in names}

    def _fetched(self, name: str) -> Value:
        if self._block.vars[name].persistable and self._host.has_value(name):
            return self._host.read(name)
        if name not in self._values:
            raise PeError(f"'{name}' is not computed by a trainer", hint="servers have it")
        return self._values[name]

    def _compute(self, program: Program, wanted: Sequence[str]) -> None:
        made = {n for op in program.top_ops for n in op.output_names()}
        reads = {n for op in program.top_ops for n in op.input_names()}
        fetched = [n for n in dict.fromkeys(wanted) if n in made and not program.vars[n].persistable]
        # Values that live between steps are read from the scope, which may be newer than what this step has been given.
        part = {n: v for n, v in self._values.items() if n in reads and (n not in made or not program.vars[n].persistable)}
        self._values.update(self._host.run(program, part, fetched))

    def array(self, name: str) -> Array:
        """Return a value that was computed, or that lives between steps."""
        return np.asarray(self._values[name]) if name in self._values else self._host.read(name)

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _look_up(self, op: Operator) -> None:
        """Fetch the rows of all ids at once; each is asked for once."""
        width = self._block.vars[op.inputs["W"][0]].type.shape[1:]
        dtype = self._block.vars[op.inputs["W"][0]].type.numpy
        ids = [np.asarray(self._values[n]) for n in op.inputs["Ids"]]
        # Samples name the same rows again and again: each crosses the network once.
        numbers, places = np.unique(np.concatenate([i.ravel() for i in ids]), return_inverse=True)
        ends = np.cumsum(op.attrs["height_sections"])
        if len(numbers) and not 0 <= numbers[0] <= numbers[-1] < ends[-1]:
            bad = numbers[0] if numbers[0] < 0 else numbers[-1]
            raise PeError(f"distributed_lookup_table: id {bad} is not in [0, {ends[-1]}) of '{op.inputs['W'][0]}'")
        # Ids are sorted, so that each server's are one stretch.
        cuts = np.searchsorted(numbers, ends)
        asked: dict[str, dict[str, Array]] = {}
        spans = []
        for name, where, begin, end, base in zip(
            op.attrs["table_names"], op.attrs["endpoints"], (0, *cuts), cuts, (0, *ends), strict=False
        ):
            if end > begin:
                asked.setdefault(where, {})[name] = numbers[begin:end] - base
                spans.append((where, name, begin, end))
        answers = self._servers.ask({e: Message("rows", {}, a) for e, a in asked.items()}, "looks up rows")
        rows = np.zeros((len(numbers), *width), dtype)
        for where, name, begin, end in spans:
            rows[begin:end] = array_of(answers[where], name, (end - begin, *width), where)
        if op.attrs["padding_idx"] >= 0:
            rows[numbers == op.attrs["padding_idx"]] = 0
        at = 0
        for source, out, each in zip(op.inputs["Ids"], op.outputs["Outputs"], ids, strict=True):
            shape = each.shape if op.attrs["lookup_table_version"].endswith("_v2") else each.shape[:-1]
            found = rows[places.ravel()[at : at + each.size]].reshape(*shape, *width)
            same = self._values[source]
            self._values[out] = Leveled(found, same.lod) if isinstance(same, Leveled) else found
            at += each.size

    def _split_byref(self, op: Operator) -> None:
        whole = self.array(op.inputs["X"][0])
        for out, end, count in zip(op.outputs["Out"], np.cumsum(op.attrs["sections"]), op.attrs["sections"], strict=True):
            self._values[out] = whole[end - count : end]

    def _split_selected_rows(self, op: Operator) -> None:
        rows, values = self._rows_of(op)
        self._split_rows(rows, values, op.outputs["Out"], op.attrs["height_sections"])

    def _rows_of(self, op: Operator) -> tuple[Array, Array]:
        rows, values = self.array(op.inputs["Rows"][0]), self.array(op.inputs["X"][0])
        there = rows >= 0
        # Numbers below 0 stand for rows that a batch of a fixed size does not fill.
        return rows[there], values[there]

    def _split_rows(self, rows: Array, values: Array, names: Sequence[str], heights: Sequence[int]) -> None:
        for name, end, height in zip(names, np.cumsum(heights), heights, strict=True):
            mine = (rows >= end - height) & (rows < end)
            self._sparse[name] = rows[mine] - (end - height), values[mine]

    def _send(self, op: Operator) -> None:
        where = op.attrs["epmap"]
        if where == [NOBODY]:  # for a communicator
            return
        if not op.attrs["use_send_handler"]:
            name = op.inputs["X"][0]
            self._servers.ask({e: Message("count", {"name": name}) for e in where}, "tells servers of a step")
            return
        names = op.inputs["X"]
        if op.inputs.get("Rows") and names[0] not in self._sparse:
            rows, values = self._rows_of(op)
            heights = op.attrs["sections"] or [int(rows.max(initial=0)) + 1]
            names = op.attrs["send_varnames"] or names
            self._split_rows(rows, values, names, heights)
        elif op.attrs["send_varnames"]:
            whole, counts = self.array(names[0]), op.attrs["sections"]
            names = op.attrs["send_varnames"]
            for name, end, count in zip(names, np.cumsum(counts), counts, strict=True):
                self._values[name] = whole[end - count : end]
        for name, endpoint in zip(names, where, strict=True):
            push = self._pushes.setdefault(endpoint, {})
            if name in self._sparse:
                push[name + ROWS], push[name] = self._sparse[name]
            else:
                push[name] = self.array(name)

    def _send_barrier(self, op: Operator) -> None:
        self._push()
        if not op.attrs["half_async"]:
            self._servers.ask({e: Message("barrier") for e in op.attrs["endpoints"]}, "waits for the other trainers")

    def _push(self) -> None:
        if self._pushes:
            # Servers take the mean over trainers; a trainer with fewer samples counts less.
            if self._weight != 1:
                self._pushes = {e: {n: self._weighted(n, a) for n, a in each.items()} for e, each in self._pushes.items()}
            if self._outbox is not None:
                self._outbox.put(self._pushes)
            else:
                self._servers.ask({e: Message("push", {}, a) for e, a in self._pushes.items()}, "sends gradients")
            self._pushes = {}

    def _weighted(self, name: str, gradient: Array) -> Array:
        return gradient if name.endswith(ROWS) else gradient * gradient.dtype.type(self._weight)

    def _arrive(self) -> None:
        """Take the parameters that have come while nobody looked."""
        for op in self._cut.talk:
            if does(op) in ("take", ""):
                getattr(self, f"_{op.type}")(op)
        self._take()

    def stand_by(self) -> None:
        """Take part in a step without samples: nothing is sent, and parameters are taken."""
        for op in self._cut.talk:
            # Only servers that wait for all trainers need to hear of one without samples.
            if does(op) == "wait" and not op.attrs["half_async"]:
                empty = Message("barrier", {"empty": 1})
                self._servers.ask(dict.fromkeys(op.attrs["endpoints"], empty), "waits for the other trainers")
            elif does(op) in ("take", "taken", ""):
                getattr(self, f"_{op.type}")(op)
        self._take()

    def _recv(self, op: Operator) -> None:
        self._push()
        # A server is asked once, for all that is due: requests take a round trip each.
        for name, endpoint in zip(op.attrs["recv_varnames"] or op.outputs["Out"], op.attrs["epmap"], strict=True):
            self._pulls.setdefault(endpoint, []).append(name)

    def _fetch_barrier(self, op: Operator) -> None:
        del op  # servers wait for the next gradients of all trainers before they change anything
        self._take()

    def _concat(self, op: Operator) -> None:
        self._take()
        # Pieces come from several servers; the parameter is written when the last of them is there.
        if all(n in self._taken for n in op.inputs["X"]):
            self._host.write(op.outputs["Out"][0], np.concatenate([self._taken[n] for n in op.inputs["X"]]))

    def _fake_init(self, op: Operator) -> None:
        """Do nothing: the table is on servers."""

    def _take(self) -> None:
        """Ask for all parameters that are due, each server once."""
        if not self._pulls:
            return
        messages = {e: Message("pull", {"names": names}) for e, names in self._pulls.items()}
        answers = self._outbox.take(self._pulls) if self._outbox is not None else self._servers.ask(messages, "takes parameters")
        for endpoint, names in self._pulls.items():
            for name in names if endpoint in answers else ():
                kind = self._block.vars[name].type
                self._taken[name] = array_of(answers[endpoint], name, kind.shape, endpoint).astype(kind.numpy, copy=False)
        # Servers answer in their own element type where they decode; the scope has the declared one.
        self._pulls = {}
        self._keep()

    def _keep(self) -> None:
        """Write whole parameters to the scope."""
        for op in self._cut.talk:
            if does(op) == "take" and op.attrs["recv_varnames"]:
                blocks = op.attrs["recv_varnames"]
                if all(n in self._taken for n in blocks):
                    self._host.write(op.outputs["Out"][0], np.concatenate([self._taken[n] for n in blocks]))
            elif does(op) == "take":
                for name in op.outputs["Out"]:
                    if name in self._taken and self._block.vars[name].persistable:
                        self._host.write(name, self._taken[name])


def array_of(answer: Message, name: str, shape: Sequence[int], endpoint: str) -> Array:
    """Return an array of an answer.

    Raises:
        PeError: it is not there, or of another shape.
    """
    found = answer.arrays.get(name)
    if found is None or found.shape != tuple(shape):
        got = "nothing" if found is None else f"{found.dtype}{list(found.shape)}"
        raise PeError(f"server {endpoint} gave {got} for '{name}', which is {list(shape)}", hint="do both run the same script?")
    return found
