"""`PE_CHECK_BOUNDS=1`: kernels check every address before they use it; one outside the arguments is an error.

Kernels work with addresses, so a wrong index would read or overwrite whatever lies there. In this mode loads and stores of compiled kernels
go through a function that knows the ranges of the call's arguments, and which of them the op may write: its outputs and its scratch memory,
not its inputs. What lies elsewhere goes to a place of its own, and the call is reported. It is slow, one thread runs all, and what masked
instructions and prefetches touch is not looked at. Tests of ops run in it. That outputs lie on no input is looked at in plans, by
`pe_cli.execute.memory.alias_check`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from pe_cli.core.lazy_dataclass import dataclass

#: Begin and end of memory, as addresses.
Range = tuple[int, int]
#: Whether this process checks.
CHECKED = os.environ.get("PE_CHECK_BOUNDS") == "1"
#: Of what is written into kernels: another one compiles them again.
FORM = "checked 4"
#: Words of the table: how many of the first ranges are read and how many are written, what lay elsewhere (its address, its size, how often,
#: and whether it was a store), and then begins and ends.
READ, WRITTEN, ADDRESS, SIZE, FAILED, STORED, FIRST = range(7)
#: Most ranges of a call, and bytes of the place for what lies outside.
MOST, ASIDE = 1 << 14, 4096
#: Bytes above a function's frame that are taken for the stack of those that called it: what they keep there they may hand on.
STACK = 1 << 16
#: The name that kernels call.
CHECK = "pe_checked"

_TABLE = np.zeros(FIRST + 2 * MOST, np.int64)
_PLACE = np.zeros(ASIDE, np.uint8)
_SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "half": 2, "float": 4, "double": 8, "ptr": 8}
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_DEFINED = re.compile(r"^\s*(%[\w.\-\"]+) = (alloca|getelementptr|bitcast|select|phi) (.*)$")
_NAME = re.compile(r"%[\w.\-]+|%\"[^\"]+\"")
_LOAD = re.compile(r"^(\s*%\S+ = load (?:volatile )?)(<\d+ x \w+>|\w+), ptr ([%@]\S+?)(,.*|)$")
_STORE = re.compile(r"^(\s*store (?:volatile )?)(<\d+ x \w+>|\w+) (.+), ptr ([%@]\S+?)(,.*|)$")
#: What an entry takes its arguments from.
_STACK = ("%record",)


def checking(text: str, entry: str) -> str:
    """Return the LLVM text of a kernel whose loads and stores are checked, but for those of its own stack and constants, and of the entry.

    Args:
        text: of a module, before it is optimised.
        entry: function that takes the arguments out of their record.
    """
    lines, number, stack, outside = [], 0, set[str](), True
    for line in text.splitlines():
        if line.startswith("define "):
            stack, outside = set(_STACK), f'@"{entry}"(' in line or f"@{entry}(" in line
        elif not outside:
            # What is derived from an address of the stack counts as the stack, also a select or phi of it and of another address.
            made = _DEFINED.match(line)
            if made and (made[2] == "alloca" or "ptr @" in made[3] or stack & set(_NAME.findall(made[3]))):
                stack.add(made[1])
            for pattern, place in ((_LOAD, 3), (_STORE, 4)):
                found = pattern.match(line)
                size = _size(found[2]) if found else 0
                if found and size and found[place].startswith("%") and found[place] not in stack:
                    number += 1
                    name = f"%pe.checked.{number}"
                    lines.append(f"  {name} = call ptr @{CHECK}(ptr {found[place]}, i64 {size}, i64 {int(pattern is _STORE)})")
                    begin, end = found.span(place)
                    line = line[:begin] + name + line[end:]
        lines.append(line)
    return "\n".join([*lines, f"declare ptr @{CHECK}(ptr, i64, i64)", ""])


def _size(kind: str) -> int:
    """Return the bytes of a type; 0 of one that is not known."""
    if vector := _VECTOR.fullmatch(kind):
        return int(vector[1]) * _SIZES.get(vector[2], 0)
    return _SIZES.get(kind, 0)


def checker() -> bytes:
    """Return the object of the function that kernels call, for this process: it knows where the table lies."""
    text = f"""
define ptr @{CHECK}(ptr %p, i64 %size, i64 %stores) noinline {{
entry:
  %a = ptrtoint ptr %p to i64
  %z = add i64 %a, %size
  %t = inttoptr i64 {_TABLE.ctypes.data} to ptr
  %counter = getelementptr i64, ptr %t, i64 %stores
  %n = load i64, ptr %counter
  %frame = alloca i8
  %s = ptrtoint ptr %frame to i64
  %above = sub i64 %a, %s
  %own = icmp ult i64 %above, {STACK}
  br i1 %own, label %good, label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %over = icmp sge i64 %i, %n
  br i1 %over, label %bad, label %look
look:
  %two = mul i64 %i, 2
  %at = add i64 %two, {FIRST}
  %b = getelementptr i64, ptr %t, i64 %at
  %e = getelementptr i64, ptr %b, i64 1
  %begin = load i64, ptr %b
  %end = load i64, ptr %e
  %low = icmp uge i64 %a, %begin
  %high = icmp ule i64 %z, %end
  %in = and i1 %low, %high
  br i1 %in, label %good, label %more
more:
  %next = add i64 %i, 1
  br label %head
good:
  ret ptr %p
bad:
  %f = getelementptr i64, ptr %t, i64 {FAILED}
  %before = load i64, ptr %f
  %count = add i64 %before, 1
  store i64 %count, ptr %f
  %x = getelementptr i64, ptr %t, i64 {ADDRESS}
  store i64 %a, ptr %x
  %y = getelementptr i64, ptr %t, i64 {SIZE}
  store i64 %size, ptr %y
  %w = getelementptr i64, ptr %t, i64 {STORED}
  store i64 %stores, ptr %w
  %aside = inttoptr i64 {_PLACE.ctypes.data} to ptr
  ret ptr %aside
}}
"""
    target: Any = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="static", codemodel="jitdefault")
    return bytes(target.emit_object(llvm.parse_assembly(text)))


def allow(written: Sequence[Range], read: Sequence[Range] = ()) -> None:
    """Say which memory the next call may touch.

    Args:
        written: begins and ends of what it may write, and read.
        read: of what it may only read.
    """
    # Written ranges come first: a store is compared with the first of them only, a load with all.
    ranges = [*written, *read]
    assert len(ranges) <= MOST, "a call of so many arguments"
    _TABLE[READ], _TABLE[WRITTEN], _TABLE[FAILED] = len(ranges), len(written), 0
    _TABLE[FIRST : FIRST + 2 * len(ranges)] = [word for pair in ranges for word in pair]


#: All memory: for kernels that are called outside of steps.
EVERYTHING = [(0, (1 << 63) - 1)]
allow(EVERYTHING)


def touched() -> Touch | None:
    """Return what the last call touched that it may not; None where it did not."""
    count, address, size, stored = (int(_TABLE[i]) for i in (FAILED, ADDRESS, SIZE, STORED))
    return Touch(count, address, size, bool(stored)) if count else None


@dataclass(frozen=True)
class Touch:
    """Memory that a call may not touch.

    Args:
        count: how often it did.
        address: where it did the last time.
        size: bytes of that time.
        stored: whether it wrote there.
    """

    count: int
    address: int
    size: int
    stored: bool

    def told(self, written: Sequence[Range], read: Sequence[Range]) -> str:
        """Return what a call did that may write some ranges and read others, without a subject."""
        times = f", {self.count} times in all"
        inside = [(b, e) for b, e in read if b <= self.address and self.address + self.size <= e]
        if self.stored and inside:
            (begin, end), *_ = inside
            return f"wrote {self.size} bytes {self.address - begin} bytes into {end - begin} that it may only read{times}"
        ranges = written if self.stored else [*written, *read]
        return f"{'wrote' if self.stored else 'read'} {self.size} bytes {nearest(self.address, ranges)}{times}"


def nearest(address: int, ranges: Iterable[Range]) -> str:
    """Return where an address lies beside the closest range."""
    begin, end = min(ranges, key=lambda r: min(abs(address - r[0]), abs(address - r[1])), default=(0, 0))
    if address < begin:
        return f"{begin - address} bytes before {end - begin} that it may touch"
    return f"{address - end} bytes behind {end - begin} that it may touch"
