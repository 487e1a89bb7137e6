"""cuDNN's backend interface as far as `cuda_libraries.cudnn` asks for it: descriptors as its header has them, numbers by PyTorch."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.cuda.libraries.bits import numbers, put
from tests.cuda.libraries.cudnn_attention import attend
from tests.cuda.libraries.cudnn_tensors import tensor
from tests.needs import torch

#: Elements of attributes by their types.
ELEMENTS: dict[int, Any] = {
    0: ctypes.c_void_p, 1: ctypes.c_int, 2: ctypes.c_bool, 3: ctypes.c_int64, 4: ctypes.c_float, 5: ctypes.c_double, 6: ctypes.c_void_p,
    7: ctypes.c_int, 8: ctypes.c_int, 11: ctypes.c_int, 14: ctypes.c_int, 15: ctypes.c_void_p, 19: ctypes.c_int, 24: ctypes.c_ubyte,
}  # fmt: skip
ENGINE, CONFIG, HEURISTICS, PLAN, GRAPH, PACK = 2, 3, 4, 5, 15, 16
#: Kind of an operation -> attributes of what it reads, and of what it writes.
FORWARD, FILTERS, IMAGES = 10, 11, 12
HANDLE, BAD, NOT_SUPPORTED = 0x700, 2000, 3000


@dataclass(frozen=True)
class Engine:
    """An engine.

    Args:
        cost: microseconds of a call.
        notes, behaviours: as they are numbered.
        workspace: bytes.
        off: is added to every result; to `Level` alone where `of_level` says so.
        of_level: see there.
        wavers: whether a result is a rounding larger in every second run.
    """

    cost: float
    notes: tuple[int, ...] = ()
    behaviours: tuple[int, ...] = ()
    workspace: int = 0
    off: float = 0.0
    of_level: bool = False
    wavers: bool = False


class Cudnn:
    """The functions of libcudnn.so; results are numbers, places are written through pointers.

    Args:
        stream: enqueues something that takes so many microseconds, in the order of the device's stream.
        engines: in the order in which they are recommended.

    Attributes:
        called: number of an engine -> calls.
        open: descriptors that are not destroyed.
        searched: how often engines were asked for.
    """

    def __init__(self, stream: Callable[[Callable[[], Any], float], int], *engines: Engine) -> None:
        self._stream = stream
        self.engines = engines
        self.called: dict[int, int] = {}
        self.open: dict[int, dict[Any, Any]] = {}
        self.searched = 0
        self._made = 0
        self._texts: list[dict[str, Any]] = []

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, name)
        return (lambda *args: own(*args)) if name.startswith("cudnn") else own

    def cudnnGetVersion(self) -> int:
        return 92801

    def cudnnCreate(self, place: Any) -> int:
        place._obj.value = HANDLE
        return 0

    def cudnnSetStream(self, handle: Any, stream: Any) -> int:
        return 0 if handle.value == HANDLE else BAD

    def cudnnBackendCreateDescriptor(self, kind: int, place: Any) -> int:
        self._made += 1
        place._obj.value = self._made
        self.open[self._made] = {"kind": kind}
        return 0

    def cudnnBackendDestroyDescriptor(self, pointer: Any) -> int:
        del self.open[pointer.value]
        return 0

    def cudnnBackendSetAttribute(self, pointer: Any, attribute: int, element: int, count: int, at: int) -> int:
        found = self.open[pointer.value]
        assert "done" not in found
        values = list((ELEMENTS[element] * count).from_address(at))
        found[attribute] = [self.open[v] for v in values] if element == 15 else bytes(values) if element == 24 else values
        return 0

    def cudnnBackendFinalize(self, pointer: Any) -> int:
        found = self.open[pointer.value]
        found["done"] = True
        if found["kind"] == PLAN:
            assert found[400] == [HANDLE]
            if 405 in found:
                held = json.loads(found[405])
                found["graph"], found["engine"] = self._texts[held["graph"]], held["engine"]
            else:
                found["graph"], found["engine"] = found[401][0]["graph"], found[401][0]["engine"]
        return 0

    def cudnnBackendGetAttribute(self, pointer: Any, attribute: int, element: int, most: int, count: Any, at: int) -> int:
        found, array = self.open[pointer.value], (ELEMENTS[element] * most).from_address(at)
        values: Any
        if attribute == 202:  # engines of a graph, by heuristics; all that works is found by the fallback alone
            self.searched += 1
            engines = range(len(self.engines)) if found[200] == [3] else []
            for i in engines:
                self.open[array[i]] |= {"graph": found[201][0], "engine": i, "done": True}
            count._obj.value = len(engines)
            return 0
        if attribute == 300:
            self.open[array[0]] |= {"engine": found["engine"], "done": True}
            count._obj.value = 1
            return 0
        assert found["done"]
        engine = self.engines[found["engine"]]
        if attribute == 405:
            self._texts.append(found["graph"])
            values = json.dumps({"graph": len(self._texts) - 1, "engine": found["engine"]}).encode()
        else:
            values = {1303: engine.notes, 1305: engine.behaviours, 402: (engine.workspace,)}[attribute]
        array[: len(values)] = list(values)
        count._obj.value = len(values)
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        assert handle.value == HANDLE
        found, given = self.open[plan.value], self.open[pack.value]
        return self._stream(lambda: self._compute(found, given), self.engines[found["engine"]].cost)

    def _compute(self, found: dict[Any, Any], given: dict[Any, Any]) -> None:
        engine = self.engines[found["engine"]]
        places = dict(zip(given[1000], given[1001], strict=True))
        (operation,) = found["graph"][801]
        if engine.workspace:
            ctypes.memset(given[1003][0], 0xFF, engine.workspace)
        off = 1e-6 if engine.wavers and self.called.get(found["engine"], 0) % 2 else engine.off
        if operation["kind"] in (FORWARD, FILTERS, IMAGES):
            convolve(operation, places, off)
        else:
            attend(operation, places, *((0.0, off) if engine.of_level else (off, 0.0)))
        self.called[found["engine"]] = self.called.get(found["engine"], 0) + 1


def convolve(operation: dict[Any, Any], places: dict[int, int], off: float) -> None:
    """Do a convolution where its tensors say."""
    kind = operation["kind"]
    how, image, filters, out = {
        FORWARD: (702, 704, 703, 705), IMAGES: (708, 710, 709, 711), FILTERS: (714, 716, 715, 717)
    }[kind]  # fmt: skip
    (c,), x, w, y = operation[how], *(tensor(operation[a][0], places) for a in (image, filters, out))
    alpha, beta = {FORWARD: (700, 701), IMAGES: (706, 707), FILTERS: (712, 713)}[kind]
    assert (operation[alpha], operation[beta], c[101], c[106]) == ([1.0], [0.0], [1], [2])
    (top, left), (bottom, right) = c[105], c[104]
    assert len({v.dtype for v in (x, w, y)}) == 1, "engines are of one type"
    groups = x.shape[1] // w.shape[1]
    pads = (left, right, top, bottom)
    args = {"stride": c[103], "dilation": c[102], "groups": groups}
    written = {FORWARD: y, IMAGES: x, FILTERS: w}[kind]
    written[...] = 0  # what was there is not read
    xs, ws, ys = (torch.tensor(numbers(v)) for v in (x, w, y))
    padded = torch.nn.functional.pad(xs, pads)
    if kind == FORWARD:
        put(y, torch.nn.functional.conv2d(padded, ws, **args).numpy() + off)
    elif kind == IMAGES:
        found = torch.nn.grad.conv2d_input(padded.shape, ws, ys, **args).numpy()
        h, wide = x.shape[2:]
        put(x, found[:, :, top : top + h, left : left + wide] + off)
    else:
        put(w, torch.nn.grad.conv2d_weight(padded, ws.shape, ys, **args).numpy() + off)
