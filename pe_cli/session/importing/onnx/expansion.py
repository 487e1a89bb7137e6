"""Writes functions of an ONNX graph out, with the package onnx in a process of its own.

The package does that in C++, on a graph that may come from anywhere: one that it cannot take ends that process, and is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

#: Bytes of an initializer's values from which on they stay here: shapes are inferred from small ones alone.
SMALL = 1024
#: Seconds that a graph may take.
SECONDS = 60.0
#: Bytes of addresses of the process.
ADDRESSES = 4 << 30
#: Domain of what ONNX defines single nodes by.
DEFINITIONS = "pe.definitions"
_SIZE = struct.Struct("<Q")
#: An operator: its domain and name.
Kind = tuple[str, str]


class ExpansionError(Exception):
    """The package onnx refuses a graph, or has died of it."""


def expanded(model: Any, kinds: Sequence[Kind] | None = None) -> Any:
    """Return a model with functions written out.

    Args:
        model: not changed.
        kinds: of the operators to write out that ONNX defines by others; None for the functions that the model brings along.

    Raises:
        ExpansionError: the package onnx refuses it.
    """
    import onnx

    sent = onnx.ModelProto()
    sent.CopyFrom(model)
    held = {}
    for tensor in sent.graph.initializer:
        if len(tensor.raw_data) > SMALL:
            held[tensor.name] = tensor.raw_data
            tensor.ClearField("raw_data")
    made = onnx.ModelProto.FromString(_WORKER.ask(json.dumps(kinds).encode(), sent.SerializeToString()))
    for tensor in made.graph.initializer:
        if tensor.name in held:
            tensor.raw_data = held[tensor.name]
    return made


class _Worker:
    """The process, which is started when it is first asked, and anew when it has died; it ends with this one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._of = 0

    def ask(self, *parts: bytes) -> bytes:
        """Return the answer to a message.

        Raises:
            ExpansionError: the package refuses it, or the process has died or takes too long.
        """
        # A process that was forked shares the pipes with this one, and must not answer for it.
        if self._process is None or self._of != os.getpid() or self._process.poll() is not None:
            self._of = os.getpid()
            command = [sys.executable, "-m", "pe_cli.session.importing.onnx.expansion"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        told, heard = self._process.stdin, self._process.stdout
        assert told is not None
        assert heard is not None
        try:
            for part in parts:
                told.write(_SIZE.pack(len(part)) + part)
            told.flush()
            if not select.select([heard], [], [], SECONDS)[0]:
                raise ExpansionError(f"the package onnx takes longer than {SECONDS:g} seconds")
            good, answer = _read(heard), _read(heard)
        except (OSError, EOFError):
            code = self._end()
            raise ExpansionError(f"the package onnx dies of it (signal {-code})") from None
        except ExpansionError:
            self._end()
            raise
        if not good:
            raise ExpansionError(answer.decode(errors="replace"))
        return answer

    def _end(self) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)  # one that has died says by which signal
        process.kill()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        return process.wait()


_WORKER = _Worker()


def _read(pipe: IO[bytes]) -> bytes:
    """Return the next message.

    Raises:
        EOFError: there is none, or not the whole of it.
    """
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        raise EOFError
    size = _SIZE.unpack(head)[0]
    message = pipe.read(size)
    if len(message) < size:
        raise EOFError
    return message


# --- in the other process ---------------------------------------------------------------------------------------------


def serve(asks: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until nobody asks any more."""
    import onnx

    refusals = (
        RuntimeError, ValueError, TypeError, MemoryError,
        onnx.shape_inference.InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError,
    )  # fmt: skip
    while True:
        try:
            kinds, model = json.loads(_read(asks)), onnx.ModelProto.FromString(_read(asks))
        except EOFError:
            return
        try:
            made = _written_out(model, None if kinds is None else [(domain, name) for domain, name in kinds])
            good, answer = b"1", made.SerializeToString()
        except refusals as error:
            good, answer = b"", str(error)[:1000].encode()
        for part in (good, answer):
            answers.write(_SIZE.pack(len(part)) + part)
        answers.flush()


def _written_out(model: Any, kinds: Sequence[Kind] | None) -> Any:
    from onnx import inliner

    if kinds is None:
        return inliner.inline_local_functions(model)
    whole = _with_left_out(model, kinds)
    return inliner.inline_selected_functions(whole, list(kinds), exclude=False, inline_schema_functions=True)


def _with_left_out(model: Any, chosen: Iterable[Kind]) -> Any:
    """Return a model in which nodes that leave inputs out are those that ONNX defines them by for just these inputs.

    The inliner of the package onnx asks for the types of all inputs, and fails where one is left out.
    """
    import onnx
    from onnx import inliner

    made, found = onnx.ModelProto(), False
    made.CopyFrom(model)
    kinds, version = set(chosen), next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), 0)
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {given.name: given.type for given in (*graph.input, *graph.value_info, *graph.output)}
    types |= {t.name: onnx.helper.make_tensor_type_proto(t.data_type, list(t.dims)) for t in graph.initializer}
    for number, node in enumerate(made.graph.node):
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) not in kinds or domain or "" not in node.input:
            continue
        schema: Any = onnx.defs.get_schema(node.op_type, version)
        if not schema.has_context_dependent_function or any(name and name not in types for name in node.input):
            continue
        given = [types[name].SerializeToString() if name else b"" for name in node.input]
        since = max((v for v in schema.context_dependent_function_opset_versions if v <= version), default=version)
        body = schema.get_context_dependent_function_with_opset_version(since, node.SerializeToString(), given)
        function = onnx.FunctionProto.FromString(body)
        function.domain, function.name = DEFINITIONS, f"{node.op_type}_{number}"
        made.functions.append(function)
        node.domain, node.op_type, found = DEFINITIONS, function.name, True
        del node.attribute[:]
    if not found:
        return model
    made.opset_import.append(onnx.helper.make_opsetid(DEFINITIONS, 1))
    return inliner.inline_local_functions(made)


if __name__ == "__main__":
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    # A crash is what this process is for, and leaves no file behind.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer)
