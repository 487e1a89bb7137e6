"""A test device that runs PTX on this CPU: blocks one after the other, threads of a block in any order, every access looked at.

What it reports: an access outside of what the kernel was given, shared memory that is read before it is written, two threads at one place
of which one writes, where no barrier lies between, and threads that wait for others which do not come.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np

from pe_cli.kernels.compiler import cache, target
from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.compiler.loader import addresses
from pe_cli.kernels.language import Int, PtrI32, PtrI64, PtrU8, intrinsic, kernel, pointer_i64
from tests.cuda.ptx import layout as at
from tests.cuda.ptx.layout import (
    ASIDE,
    ATOMIC,
    BEGIN,
    BLOCK_SHARED,
    CONTEXT,
    CTAID,
    DIVERGED,
    END,
    FAILED_ADDRESS,
    FAILED_BLOCK,
    FAILED_LINE,
    FAILED_OTHER,
    FAILED_SIZE,
    FAILED_THREAD,
    FAILURE,
    FENCE,
    FENCED,
    FOR_WARP,
    LANES,
    MASK,
    MET,
    MISALIGNED,
    NCTAID,
    NTID,
    OUTSIDE,
    RACE,
    REGION,
    SHADOW,
    SHIFT,
    SPACE,
    STUCK,
    TID,
    TOLD,
    TURN,
    UNWRITTEN,
    WRITE,
)  # fmt: skip
from tests.cuda.ptx.parse import parse
from tests.cuda.ptx.translate import translate

Array = np.ndarray[Any, Any]
#: Bytes around each piece of memory that nobody may touch.
GUARD = 256
#: Bits of a thread and of a number of barriers in a tag, and what stands for several threads or blocks.
THREAD_BITS, EPOCH_BITS = 12, 20
MANY_THREADS, MANY_BLOCKS = (1 << THREAD_BITS) - 1, (1 << 30) - 1
#: Set in the tag of the last reader where others read before, of blocks that have told since that they had.
EARLIER = 1 << 62


@intrinsic("int64", "int64", "int64", "int64", "int64")
def call_step(env: Any, args: list[Any]) -> Any:
    """Call `i32 step(context, frame, place)` at an address."""
    from llvmlite import ir

    word = env.type_of("int64*")
    kind = ir.FunctionType(ir.IntType(32), [word, word, ir.IntType(32)])
    b = env.builder
    given = [b.inttoptr(args[1], word), b.inttoptr(args[2], word), b.trunc(args[3], ir.IntType(32))]
    return b.sext(b.call(b.inttoptr(args[0], kind.as_pointer()), given), ir.IntType(64))


@kernel
def check(  # noqa: C901 - kernels are compiled as one
    address: Int, size: Int, access: Int, line: Int, thread: Int, block: Int, epoch: Int, regions: PtrI64, count: Int, context: PtrI64,
    lines: PtrU8,
):  # fmt: skip
    """Look at an access; one outside goes to a place aside. A tag is a block, a number of barriers and a thread, each from 1.

    What a block wrote another may read or write if a thread of the first, behind a barrier behind that, fenced and then made an atomic
    access, and one of the other made an atomic access and then fenced, before a barrier before this. MET has two words for each block:
    the barriers that it had seen, from 1, when it last told so, and when it last heard so; 0 for never. So may the last of many blocks
    write what all have read.
    """
    failure, other = OUTSIDE, 0
    lines[line] = 1
    tag = (block + 1) << (THREAD_BITS + EPOCH_BITS) | (epoch << THREAD_BITS) | (thread + 1)
    met = pointer_i64(context[MET])
    if access == FENCE:
        context[FENCED] = tag
        if context[TOLD] == tag:
            met[2 * block + 1] = epoch + 1
        return
    for r in range(count):
        begin = regions[REGION * r + BEGIN]
        if address < begin or address + size > regions[REGION * r + END]:
            continue
        failure = MISALIGNED if address % size != 0 else 0
        if access == ATOMIC and regions[REGION * r + SPACE] != BLOCK_SHARED and context[FENCED] == tag:
            context[TOLD] = tag
            met[2 * block] = epoch + 1
        if regions[REGION * r + SHADOW] == 0 or access == ATOMIC:
            break
        shadow, shift = pointer_i64(regions[REGION * r + SHADOW]), regions[REGION * r + SHIFT]
        shared = regions[REGION * r + SPACE] == BLOCK_SHARED
        for piece in range((address - begin) >> shift, ((address + size - 1 - begin) >> shift) + 1):
            for which in range(2):  # the last writer; then, for a writer, the last reader
                was = shadow[2 * piece + which] & ~EARLIER
                earlier = shadow[2 * piece + which] & EARLIER
                same = was >> (THREAD_BITS + EPOCH_BITS) == block + 1
                if which == 0 and shared and access != WRITE and not same:
                    failure = UNWRITTEN
                if was == 0 or (shared and not same) or (which == 1 and access != WRITE):
                    continue
                seen = (was >> THREAD_BITS) & ((1 << EPOCH_BITS) - 1)
                by = (was >> (THREAD_BITS + EPOCH_BITS)) - 1
                handed = False
                if not same and by + 1 != MANY_BLOCKS and not shared:
                    handed = met[2 * by] > seen + 1 and met[2 * block + 1] != 0 and epoch + 1 > met[2 * block + 1]
                heard = met[2 * block + 1] != 0 and epoch + 1 > met[2 * block + 1]
                if (not same and not handed) or (same and seen == epoch and was != tag) or (earlier != 0 and not heard):
                    failure, other = RACE, was
            was = shadow[2 * piece + 1] & ~EARLIER
            earlier = shadow[2 * piece + 1] & EARLIER
            seen = (was >> THREAD_BITS) & ((1 << EPOCH_BITS) - 1)
            by = (was >> (THREAD_BITS + EPOCH_BITS)) - 1
            told = by >= 0 and by != block and by + 1 != MANY_BLOCKS and not shared and met[2 * by] > seen + 1
            handed = told and met[2 * block + 1] != 0 and epoch + 1 > met[2 * block + 1]
            if access == WRITE:
                shadow[2 * piece] = tag
            elif handed:  # what the other read, it read before
                shadow[2 * piece + 1] = tag
            elif told:
                shadow[2 * piece + 1] = tag | EARLIER
            elif by != block and was != 0 and not shared:
                shadow[2 * piece + 1] = MANY_BLOCKS << (THREAD_BITS + EPOCH_BITS)
            elif was >> THREAD_BITS == tag >> THREAD_BITS and was != tag:
                shadow[2 * piece + 1] = tag | MANY_THREADS | earlier
            else:
                shadow[2 * piece + 1] = tag | earlier
        break
    if failure != 0 and context[FAILURE] == 0:
        context[FAILURE] = failure
        context[FAILED_ADDRESS] = address
        context[FAILED_SIZE] = size
        context[FAILED_LINE] = line
        context[FAILED_THREAD] = thread
        context[FAILED_BLOCK] = block
        context[FAILED_OTHER] = other
    if failure == OUTSIDE:
        context[at.ADDRESS] = context[ASIDE]


@kernel
def run_grid(  # noqa: C901 - as above
    context: PtrI64, step: Int, frames: Int, frame_words: Int, blocks: Int, block_order: PtrI32, threads: Int, order: PtrI32,
    shared: PtrI64, shared_words: Int, places: PtrI64, kinds: PtrI64,
):  # fmt: skip
    """Run a grid until it is done or something fails; places: where each thread of the block stands, -1 at its end."""
    for b in range(blocks):
        block, epoch = block_order[b], 0
        context[at.BLOCK] = block
        context[CTAID] = block % context[NCTAID]
        context[CTAID + 1] = block // context[NCTAID] % context[NCTAID + 1]
        context[CTAID + 2] = block // (context[NCTAID] * context[NCTAID + 1])
        for i in range(shared_words):
            shared[i] = -1  # no number
        for t in range(threads):
            places[t] = 0
            pointer_i64(frames + 8 * frame_words * t)[TURN] = 0
        running = threads
        while running > 0:
            context[at.EPOCH] = epoch
            for i in range(threads):
                t = order[i]
                if places[t] < 0 or places[t] & 1 == 1:  # at its end, or waiting: places are kept doubled, odd while it waits
                    continue
                context[at.THREAD] = t
                context[TID] = t % context[NTID]
                context[TID + 1] = t // context[NTID] % context[NTID + 1]
                context[TID + 2] = t // (context[NTID] * context[NTID + 1])
                place = call_step(step, context_address(context), frames + 8 * frame_words * t, places[t] >> 1)
                places[t] = 2 * place + 1 if place > 0 else -1
                running -= place == 0
                if context[FAILURE] != 0:
                    return
            released = 0
            for t in range(threads):
                if places[t] > 0 and places[t] & 1 == 1 and kinds[places[t] >> 1] == FOR_WARP:
                    first, mask = t // LANES * LANES, pointer_i64(frames + 8 * frame_words * t)[MASK]
                    there = 1
                    for lane in range(LANES):
                        asked = (mask >> lane) & 1 == 1
                        if asked and (first + lane >= threads or places[first + lane] | 1 != places[t]):
                            there = 0
                    if there == 1:
                        released += 1
                        for lane in range(LANES):
                            if (mask >> lane) & 1 == 1:
                                places[first + lane] &= -2
            if released == 0 and running > 0:
                standing = -1
                for t in range(threads):
                    if places[t] < 0:
                        continue
                    if standing < 0:
                        standing = places[t]
                    if kinds[places[t] >> 1] == FOR_WARP:
                        context[FAILURE] = STUCK
                    elif places[t] != standing:
                        context[FAILURE] = DIVERGED
                    context[FAILED_THREAD] = t
                    context[FAILED_BLOCK] = block
                    if context[FAILURE] != 0:
                        return
                    places[t] &= -2
                epoch += 1


@intrinsic("int64", "int64*")
def context_address(env: Any, args: list[Any]) -> Any:
    """Return the address of words."""
    from llvmlite import ir

    return env.builder.ptrtoint(args[0], ir.IntType(64))


class Failed(AssertionError):
    """What a kernel did that it must not do."""


@dataclass(frozen=True)
class Order:
    """In which order threads of a block, and blocks of a grid, run.

    Args:
        name: forward, reversed or random.
        seed: of a random one.
    """

    name: str = "forward"
    seed: int = 0

    def of(self, count: int) -> Array:
        """Return a permutation: [count] int32."""
        if self.name == "random":
            return np.random.default_rng([self.seed, count]).permutation(count).astype(np.int32)
        found = np.arange(count, dtype=np.int32)
        return found[::-1].copy() if self.name == "reversed" else found


@dataclass(frozen=True)
class Piece:
    """Memory that a kernel may touch.

    Args:
        address: of its first byte.
        nbytes: its size.
        shift: 2 to the power of it is the bytes of what has a shadow of its own: of the smallest element.
    """

    address: int
    nbytes: int
    shift: int = 2


class Program:
    """A PTX text, translated and loaded.

    Args:
        text: with one entry.

    Attributes:
        touched: by line, whether an access there has been made.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.touched = np.zeros(text.count("\n") + 2, np.uint8)
        self._module = parse(text)
        small = 1 if re.search(r"\b(?:ld|st)\.shared[.\w]*16\b", text) else 2
        self._shift = 0 if ".u8" in text and self._module.shared else small
        key = hashlib.sha256(f"{_translation()}\0{text}".encode()).hexdigest()[:32]
        if not (body := cache.read(key)):
            source, places, words = translate(self._module)
            body = _head(places, words) + _object(source.replace("@step(", f"@step_{key}("))
            cache.store(key, body)
        count = int.from_bytes(body[:4], "little")
        numbers = np.frombuffer(body, np.int32, count, 4)
        self._kinds = np.array([0, *numbers[1:]], np.int64)
        self.frame_words = int(numbers[0])
        self._step, self._constants = _engine().load(f"step_{key}", body[4 + 4 * count :], list(self._module.constants))

    def launch(
        self, words: Array, pieces: Sequence[Piece], grid: tuple[int, ...], block: tuple[int, ...], order: Order | None = None
    ) -> None:
        """Run the kernel.

        Args:
            words: [parameters] uint64; pointers lead into pieces.
            pieces: all that it may touch.
            grid: blocks along each axis.
            block: threads along each axis.
            order: of threads and blocks.

        Raises:
            Failed: it did what it must not do.
        """
        order = order or Order()
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        threads, blocks = int(np.prod(block)), int(np.prod(grid))
        shared = np.empty(-(-self._module.shared_bytes // 8) + 2, np.int64)
        frames = np.zeros(threads * self.frame_words, np.int64)
        shadows = [np.zeros(2 * ((p.nbytes >> p.shift) + 1), np.int64) for p in pieces]
        inner = np.zeros(2 * ((self._module.shared_bytes >> self._shift) + 1), np.int64)
        shadowed = zip(pieces, shadows, strict=True)
        rows = [(p.address, p.address + p.nbytes, s.ctypes.data, p.shift, at.GLOBAL) for p, s in shadowed]
        constants = zip(self._constants, self._module.constants.values(), strict=True)
        rows += [(a, a + len(v), 0, 0, at.PRIVATE) for a, v in constants]
        base = shared.ctypes.data
        rows.append((base, base + self._module.shared_bytes, inner.ctypes.data, self._shift, BLOCK_SHARED))
        regions = np.array(rows, np.int64)
        aside, places, met = np.zeros(64, np.uint8), np.zeros(threads, np.int64), np.zeros(2 * blocks, np.int64)
        context = np.zeros(at.WORDS, np.int64)
        context[at.REGIONS], context[at.COUNT], context[CONTEXT] = regions.ctypes.data, len(rows), context.ctypes.data
        context[at.LINES], context[MET] = self.touched.ctypes.data, met.ctypes.data
        context[at.CHECK], context[at.SHARED], context[at.PARAMS] = _functions()[0], base, words.ctypes.data
        context[ASIDE], context[at.FRAME_WORDS] = aside.ctypes.data, self.frame_words
        context[NTID : NTID + 3], context[NCTAID : NCTAID + 3] = block, grid
        first, second = order.of(blocks), order.of(threads)
        record = np.array(
            [
                context.ctypes.data, self._step, frames.ctypes.data, self.frame_words, blocks, first.ctypes.data, threads,
                second.ctypes.data, base, len(shared) - 1, places.ctypes.data, self._kinds.ctypes.data,
            ],
            np.int64,
        )  # fmt: skip
        _call(_functions()[1], record)
        if context[FAILURE]:
            raise Failed(self._report([int(w) for w in context], rows))

    def _report(self, context: list[int], rows: Sequence[tuple[int, ...]]) -> str:
        who = f"thread {context[FAILED_THREAD]} of block {context[FAILED_BLOCK]}"
        name, line = self._module.entry.name, context[FAILED_LINE]
        if context[FAILURE] == DIVERGED:
            return f"{name}: {who} waits at another barrier than others of its block"
        if context[FAILURE] == STUCK:
            return f"{name}: {who} waits for lanes that do not come"
        where = f"{name}, line {line} of its PTX ({self.text.splitlines()[line - 1].strip()}): {who}"
        address, size = context[FAILED_ADDRESS], context[FAILED_SIZE]
        if context[FAILURE] == MISALIGNED:
            return f"{where} touches {size} bytes at an address that is no multiple of it"
        if context[FAILURE] == UNWRITTEN:
            return f"{where} reads shared memory that its block has not written"
        if context[FAILURE] == OUTSIDE:
            ranges = ((r[BEGIN], r[END]) for r in rows)
            begin, end = min(ranges, key=lambda r: min(abs(address - r[0]), abs(address - r[1])))
            return f"{where} touches {size} bytes at {address - begin} of the {end - begin} that are nearest"
        other = context[FAILED_OTHER]
        thread, block = (other & MANY_THREADS) - 1, (other >> (THREAD_BITS + EPOCH_BITS)) - 1
        by = "several blocks" if block + 1 == MANY_BLOCKS else f"block {block}"
        by = f"thread {thread} of {by}" if thread + 1 not in (0, MANY_THREADS) else f"several threads of {by}"
        return f"{where} and {by} are at one place with no barrier between"


def _head(places: Sequence[int], words: int) -> bytes:
    numbers = np.array([words, *places], np.int32)
    return len(numbers).to_bytes(4, "little") + numbers.tobytes()


@functools.cache
def _translation() -> str:
    """Return what stands for the translation in the hash of what it makes."""
    names = ("collectives", "instructions", "layout", "machine", "parse", "translate")
    own = hashlib.sha256(b"".join(Path(__file__).with_name(f"{name}.py").read_bytes() for name in names)).hexdigest()
    return "|".join([own, llvmlite.__version__, target.cpu_name(), target.features()])


@functools.cache
def _functions() -> tuple[int, int]:
    found = addresses([Instance(check), Instance(run_grid)])
    return found[Instance(check)], found[Instance(run_grid)]


def _call(function: int, record: Array) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(function)(record.ctypes.data)


@functools.cache
def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu_name(), features=target.features(), opt=0, reloc="static", codemodel="jitdefault"
    )


def _object(source: str) -> bytes:
    module = llvm.parse_assembly(source)
    module.triple, module.data_layout = llvm.get_process_triple(), str(_machine().target_data)
    module.verify()
    # Not optimised: samples are small, and that would take five times as long as the rest.
    return bytes(_machine().emit_object(module))


class _Engine:
    """LLVM's loader of translated kernels; lives as long as the process."""

    def __init__(self) -> None:
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        self._held: list[Any] = []

    def load(self, name: str, body: bytes, constants: Sequence[str]) -> tuple[int, list[int]]:
        """Return the address of a function, and those of arrays."""
        held = llvm.ObjectFileRef.from_data(body)
        self._held += [body, held]
        self._engine.add_object_file(held)
        self._engine.finalize_object()
        return self._engine.get_function_address(name), [self._engine.get_global_value_address(c) for c in constants]


@functools.cache
def _engine() -> _Engine:
    return _Engine()
