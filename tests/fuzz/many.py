"""Very many inputs of every kind: `python -m tests.fuzz.many SEED COUNT [KIND ...]`, COUNT of each kind.

The inputs are those of `damage.py`, made by Python's own random numbers instead of hypothesis, which takes five times as long as what
reads them, and their memory is that of the process (`bounds.ROUGHLY`): 115 configs a second, not 23. Input i of a kind depends on the
seed, the kind and i alone. They are tried in processes of a thousand: one that dies is told with the input at which it was. What fails is
made as small as it fails, and written to a folder, named by its kind: put it into `corpus/KIND/` with a name that says what it is.
"""

from __future__ import annotations

import argparse
import gc
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from pe_cli.kernels.compiler.instance import Instance
from pe_cli.kernels.cpu.no_op import nothing
from tests.fuzz import bounds, damage, messages, programs, requests
from tests.fuzz.damage import words
from tests.fuzz.grammars import GRAMMARS
from tests.fuzz.targets import TARGETS, project
from tests.fuzz.whole_inputs import KERNEL, binaries, texts

BATCH = 1000
#: Seconds after which an input ends the process that tries it.
LONGEST = 120
#: Bytes of addresses of a process: one that asks for more ends with an error instead of filling the machine's memory.
ADDRESSES = 8 << 30
#: How often what failed is tried again with less.
TRIES = 400


def made(draw: random.Random, kind: str, wholes: Sequence[bytes], as_text: bool) -> bytes:
    """Return what a grammar makes, seldom damaged; or one of some inputs after one to four edits, of its words or bytes."""
    if kind in GRAMMARS:
        data = GRAMMARS[kind](draw)
        return damaged(draw, data) if draw.random() < 0.1 else data
    data = draw.choice(wholes)
    if kind == "program" and draw.random() < 0.4:
        return programs.changed(data.decode(), draw).encode("utf-8", "surrogatepass")
    if kind == "frames" and draw.random() < 0.7:
        return messages.changed(data, draw)
    if kind == "http" and draw.random() < 0.8:
        return requests.stream(draw)
    if as_text and draw.random() < 0.6:
        return rewritten(draw, data.decode()).encode("utf-8", "surrogatepass")
    return damaged(draw, data)


def damaged(draw: random.Random, whole: bytes) -> bytes:
    data = bytearray(whole)
    for _ in range(draw.randint(1, 4)):
        at = draw.randint(0, len(data))
        at = draw.choice([at, min(at, 128), max(0, len(data) - at)])
        size = draw.randint(1, 16)
        new = draw.choice([*damage.BYTES, draw.randbytes(draw.randint(0, 8))])
        how = draw.choice(["bit", "byte", "cut", "drop", "repeat", "insert", "overwrite", "number"])
        if how == "bit" and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif how == "byte" and at < len(data):
            data[at] = draw.randrange(256)
        elif how == "cut":
            del data[at:]
        elif how == "drop":
            del data[at : at + size]
        elif how == "repeat":
            data[at:at] = data[at : at + size] * draw.choice([1, 2, 300])
        elif how == "insert":
            data[at:at] = new
        elif how == "number":
            width = draw.choice([1, 2, 4, 8])
            data[at : at + width] = draw.getrandbits(draw.randint(1, 8 * width)).to_bytes(width, draw.choice(["little", "big"]))
        else:
            data[at : at + len(new)] = new
    return bytes(data)


def rewritten(draw: random.Random, text: str) -> str:
    for _ in range(draw.randint(1, 4)):
        places = words(text)
        begin, end = draw.choice(places) if places else (0, 0)
        first, last = draw.choice(places) if places else (0, 0)
        codes = [draw.randrange(draw.choice([127, 1 << 11, 1 << 16])) for _ in range(draw.randrange(6))]
        letters = "".join(map(chr, codes))
        small, large = draw.randint(-3, 300), draw.randint(-(2**70), 2**70)
        number = str(draw.choice([small, large, draw.uniform(-1, 1) * 10.0 ** draw.randint(-320, 308)]))
        new = draw.choice([draw.choice(damage.NUMBERS), draw.choice(damage.WORDS), text[first:last], number, letters])
        how = draw.choice(["replace", "replace", "insert", "drop", "double line", "drop line"])
        if how in ("double line", "drop line"):
            lines = text.split("\n")
            row = text.count("\n", 0, begin)
            lines[row : row + 1] = [lines[row]] * 2 if how == "double line" else []
            text = "\n".join(lines)
        else:
            text = text[:begin] + ("" if how == "drop" else new) + text[begin if how == "insert" else end :]
    return text


def failure(kind: str, data: bytes, folder: Path) -> str:
    """Return how an input fails, the empty text where it does not: the error and where it was raised."""
    try:
        if kind != "kernel" or data != KERNEL:
            TARGETS[kind](data, folder)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error!s:.300}"
    return ""


def smaller(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Return as little of an input as still fails."""
    size, tries = len(data) // 2, 0
    while size and tries < TRIES:
        at = 0
        while at < len(data) and tries < TRIES:
            tries += 1
            less = data[:at] + data[at + size :]
            if fails(less):
                data = less
            else:
                at += size
        size //= 2
    return data


def whole_of(kind: str) -> list[bytes | str]:
    """Return whole inputs of a kind; none where a grammar makes them."""
    return [] if kind in GRAMMARS else list({**binaries(), **texts()}[kind])


def batch(seed: str, kind: str, numbers: range, folder: Path, found: Path, at: mmap.mmap) -> int:
    """Try some inputs of a kind in this process; return how many fail."""
    inputs, wanted = whole_of(kind), 0
    as_text = bool(inputs) and not isinstance(inputs[0], bytes)
    wholes = [whole.encode() if isinstance(whole, str) else whole for whole in inputs]
    for i in numbers:
        at[:8] = i.to_bytes(8, "little")
        if i % 50 == 0:
            gc.collect()  # errors hold what was read in cycles
        data = made(random.Random(f"{seed}:{kind}:{i}"), kind, wholes, as_text)
        signal.alarm(LONGEST)
        why = failure(kind, data, folder)
        signal.alarm(0)
        if why:
            wanted += 1
            signature = why.split(":")[0]
            less = smaller(data, lambda some, like=signature: failure(kind, some, folder).startswith(like))
            sys.stdout.write(f"{kind} {seed}:{i}: {why}\n")
            (found / f"{kind}-{seed}-{i}").write_bytes(less)
    return wanted


def forked(seed: str, kind: str, numbers: range, folder: Path, found: Path, at: mmap.mmap) -> bool:
    """Try some inputs in a process of their own, and in another one what is left where it dies; return whether one fails."""
    failed = False
    while numbers:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
            try:
                code = int(batch(seed, kind, numbers, folder, found, at) > 0)
                sys.stdout.flush()
            except BaseException:
                traceback.print_exc()
                raise
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        failed = failed or code != 0
        if code >= 0:
            return failed
        last = int.from_bytes(at[:8], "little")
        sys.stdout.write(f"{kind} {seed}:{last}: the process died of signal {-code}{', it took too long' * (code == -signal.SIGALRM)}\n")
        numbers = range(last + 1, numbers.stop)
    return failed


def main() -> int:
    """Try them; return 1 where one fails."""
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("seed")
    reader.add_argument("count", type=int)
    reader.add_argument("kinds", nargs="*", default=list(dict.fromkeys([*binaries(), *texts(), *GRAMMARS])))
    reader.add_argument("--first", type=int, default=0, help="number of the first input")
    reader.add_argument("--found", type=Path, default=Path(tempfile.gettempdir(), "pe-fuzz-found"))
    given = reader.parse_args()
    given.found.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")
    bounds.ROUGHLY = True
    at, failed = mmap.mmap(-1, 8), False
    assert Instance(nothing).key  # the processor is asked now and not while an input is watched
    with tempfile.TemporaryDirectory() as root:
        for kind in given.kinds:
            folder = Path(root, kind).resolve()
            folder.mkdir()
            project(folder)
            whole = GRAMMARS[kind](random.Random(0)) if kind in GRAMMARS else whole_of(kind)[0]
            failure(kind, whole.encode() if isinstance(whole, str) else whole, folder)  # what is imported on first use is imported now
            begin = time.monotonic()
            for first in range(given.first, given.first + given.count, BATCH):
                numbers = range(first, min(first + BATCH, given.first + given.count))
                failed |= forked(given.seed, kind, numbers, folder, given.found, at)
            sys.stdout.write(f"{kind}: {given.count} inputs, {given.count / (time.monotonic() - begin):.0f} a second\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
