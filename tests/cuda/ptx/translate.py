"""From PTX to LLVM text: one function that runs a thread until it ends or waits for others.

`i32 step(ptr context, ptr frame, i32 place)` begins at a place, 0 for the beginning, and returns the place where the thread waits, 0 at
its end. At a place where it waits, the registers that are read later go to the thread's frame. Every load and store asks `machine.check`
first.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

from tests.cuda.ptx import layout as at
from tests.cuda.ptx.parse import BITS, Function, Module, Unsupported

#: Special registers: word of the context.
SPECIAL = {
    f"%{name}.{axis}": word + i
    for name, word in (("tid", at.TID), ("ctaid", at.CTAID), ("ntid", at.NTID), ("nctaid", at.NCTAID))
    for i, axis in enumerate("xyz")
}
SPACES = ("global", "shared", "local", "param", "const")
_NUMBER = re.compile(r"-?(0[xX][0-9a-fA-F]+|\d+)U?")


class Emitter:
    """Text of one LLVM function; instructions are in `instructions`."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function
        self.is_entry = function is module.entry
        self.lines: list[str] = []
        self.declared: set[str] = set()
        #: Kind of each place where a thread waits, from place 1.
        self.places: list[int] = []
        self.line = 0
        self._count = 0
        self._open = True

    # --- text ---

    def emit(self, text: str) -> None:
        """Append an instruction."""
        if not self._open:  # behind a branch: a block that nothing leads to
            self.label(self.fresh("dead"))
        self.lines.append(f"  {text}")

    def end(self, text: str) -> None:
        """Append what ends a block."""
        self.emit(text)
        self._open = False

    def label(self, name: str) -> None:
        """Begin a block; the one before goes on there."""
        if self._open:
            self.lines.append(f"  br label %{name}")
        self.lines.append(f"{name}:")
        self._open = True

    def fresh(self, stem: str = "v") -> str:
        """Return a new name."""
        self._count += 1
        return f"{stem}{self._count}"

    def value(self, text: str) -> str:
        """Append an instruction that gives a value, and return its name."""
        name = f"%{self.fresh()}"
        self.emit(f"{name} = {text}")
        return name

    def call(self, kind: str, name: str, *args: tuple[str, str]) -> str:
        """Call a function of LLVM's or of the C library."""
        types = ", ".join(t for t, _ in args)
        self.declared.add(f"declare {kind} @{name}({types})")
        return self.value(f"call {kind} @{name}({', '.join(f'{t} {v}' for t, v in args)})")

    # --- context and frame ---

    def word(self, index: int) -> str:
        """Return the pointer to a word of the context."""
        return self.value(f"getelementptr i64, ptr %context, i64 {index}")

    def context(self, index: int, kind: str = "i64") -> str:
        """Return the value of a word of the context."""
        found = self.value(f"load i64, ptr {self.word(index)}")
        return found if kind == "i64" else self.value(f"trunc i64 {found} to {kind}")

    def frame(self, index: str | int) -> str:
        """Return the pointer to a word of the thread's frame."""
        return self.value(f"getelementptr i64, ptr %frame, i64 {index}")

    # --- operands ---

    def kind_of(self, register: str) -> str:
        """Return the LLVM type of a register."""
        if register not in self.function.registers:
            raise Unsupported(f"register {register}")
        return self.function.registers[register]

    def read(self, operand: str, kind: str) -> str:
        """Return an operand as a value of an LLVM type."""
        if operand in self.function.registers:
            own = self.kind_of(operand)
            return self.cast(self.value(f"load {own}, ptr %r.{_name(operand)}"), own, kind)
        if operand in SPECIAL:
            return self.cast(self.context(SPECIAL[operand], "i32"), "i32", kind)
        if operand in ("%laneid", "%warpid"):
            thread = self.context(at.THREAD, "i32")
            return self.cast(self.value(f"{'urem' if operand == '%laneid' else 'udiv'} i32 {thread}, 32"), "i32", kind)
        if operand in self.module.shared:
            return str(self.module.shared[operand][0])
        if operand in self.function.locals:
            return str(self.function.locals[operand])
        if operand in self.module.constants:
            return self.value(f"ptrtoint ptr @{operand} to i64")
        return immediate(operand, kind)

    def cast(self, value: str, kind: str, wanted: str, signed: bool = False) -> str:
        """Return a value in another type: the same bits, or fewer, or more."""
        if kind == wanted:
            return value
        floating = {"float": "i32", "double": "i64"}
        if kind in floating:
            return self.cast(self.value(f"bitcast {kind} {value} to {floating[kind]}"), floating[kind], wanted, signed)
        if wanted in floating:
            bits = self.cast(value, kind, floating[wanted], signed)
            return self.value(f"bitcast {floating[wanted]} {bits} to {wanted}")
        how = "trunc" if BITS[kind] > BITS[wanted] else "sext" if signed else "zext"
        return self.value(f"{how} {kind} {value} to {wanted}")

    def write(self, register: str, value: str, kind: str, signed: bool = False) -> None:
        """Put a value into a register."""
        if register == "_":
            return
        own = self.kind_of(register)
        self.emit(f"store {own} {self.cast(value, kind, own, signed)}, ptr %r.{_name(register)}")

    def place_of(self, operand: str, space: str, nbytes: int, access: int) -> str:
        """Return the pointer that an address in brackets means, having looked at it.

        Args:
            operand: `[base+offset]`.
            space: of SPACES, or empty for any.
            nbytes: that are read or written.
            access: READ, WRITE or ATOMIC.
        """
        found = re.fullmatch(r"\[\s*([^\]+\s]+)\s*(?:\+\s*(-?\w+))?\s*\]", operand)
        if not found:
            raise Unsupported(operand)
        base, offset = found[1], int(found[2] or "0", 0)
        if space == "param":
            return self._parameter(base, offset)
        address = self.value(f"add i64 {self.read(base, 'i64')}, {offset}")
        if space == "shared":
            address = self.value(f"add i64 {address}, {self.context(at.SHARED)}")
        if space == "local":
            depot = self.value("ptrtoint ptr %depot to i64")
            return self.value(f"inttoptr i64 {self.value(f'add i64 {address}, {depot}')} to ptr")
        return self._looked_at(address, nbytes, access)

    def place_in_shared(self, address: str, nbytes: int, access: int) -> str:
        """Return the pointer that an i64 address of shared memory means, having looked at it."""
        return self._looked_at(self.value(f"add i64 {address}, {self.context(at.SHARED)}"), nbytes, access)

    def _looked_at(self, address: str, nbytes: int, access: int) -> str:
        self.look(address, nbytes, access)
        return self.value(f"load ptr, ptr {self.word(at.ADDRESS)}")

    def look(self, address: str, nbytes: int, access: int) -> None:
        """Call what looks at accesses; arguments as for `place_of`, or those of a fence."""
        for word, what in ((at.ADDRESS, address), (at.SIZE, nbytes), (at.KIND, access), (at.LINE, self.line)):
            self.emit(f"store i64 {what}, ptr {self.word(word)}")
        check = self.value(f"load ptr, ptr {self.word(at.CHECK)}")
        self.emit(f"call void {check}(ptr %context)")

    def _parameter(self, base: str, offset: int) -> str:
        if base in self.function.slots:
            return self.value(f"getelementptr i8, ptr %slot.{base}, i64 {offset}")
        names = [name for _, _, name in self.function.params]
        if self.is_entry:  # every parameter is a word
            start = self.value(f"inttoptr i64 {self.context(at.PARAMS)} to ptr")
            return self.value(f"getelementptr i8, ptr {start}, i64 {8 * names.index(base) + offset}")
        at_name = "%result" if base == self.function.returns else f"%a{names.index(base)}"
        return self.value(f"getelementptr i8, ptr {at_name}, i64 {offset}")

    # --- waiting ---

    def wait(self, kind: int) -> None:
        """Let the thread wait here for others."""
        if not self.is_entry:
            raise Unsupported("a barrier in a function")
        self.places.append(kind)
        place = len(self.places)
        self.emit(f"; save {place}")
        self.end(f"ret i32 {place}")
        self.label(f"place{place}")

    def branch(self, condition: str, then: Callable[[], None]) -> None:
        """Do something where a condition holds."""
        yes, on = self.fresh("yes"), self.fresh("on")
        self.end(f"br i1 {condition}, label %{yes}, label %{on}")
        self.label(yes)
        then()
        self.label(on)


def _name(register: str) -> str:
    return register.lstrip("%").replace("$", "_")


def immediate(text: str, kind: str) -> str:
    """Return a constant of PTX as one of LLVM.

    Raises:
        Unsupported: it is none.
    """
    if text.startswith(("0f", "0F")) and len(text) == 10:
        bits = int(text[2:], 16)
        if kind == "float":
            return f"0x{struct.unpack('<Q', struct.pack('<d', struct.unpack('<f', struct.pack('<I', bits))[0]))[0]:016X}"
        return str(bits)
    if text.startswith(("0d", "0D")) and len(text) == 18:
        return f"0x{text[2:]}" if kind == "double" else str(int(text[2:], 16))
    if not _NUMBER.fullmatch(text):
        raise Unsupported(f"operand {text}")
    number = int(text.rstrip("U"), 0)
    if kind in ("float", "double"):
        return immediate(f"0{'f' if kind == 'float' else 'd'}{number & (2 ** BITS[kind] - 1):0{BITS[kind] // 4}x}", kind)
    return ("true" if number else "false") if kind == "i1" else str(number)


def translate(module: Module) -> tuple[str, list[int], int]:
    """Return LLVM text, the kinds of places where threads wait, and the words of a thread's frame."""
    from tests.cuda.ptx.instructions import instruction

    texts, declared, places, words = [], set[str](), list[int](), 0
    for function in (module.entry, *module.functions.values()):
        emitter = Emitter(module, function)
        for statement in function.body:
            if not statement.op:
                emitter.label(_label(statement.args[0]))
                continue
            emitter.line = statement.line
            if not statement.guard:
                instruction(emitter, statement)
                continue
            condition = emitter.read(statement.guard, "i1")
            if statement.negated:
                condition = emitter.value(f"xor i1 {condition}, true")
            emitter.branch(condition, lambda e=emitter, s=statement: instruction(e, s))
        if emitter._open:
            emitter.end("ret i32 0" if emitter.is_entry else "ret void")
        declared |= emitter.declared
        if emitter.is_entry:
            places = emitter.places
            text, words = _entry(emitter)
        else:
            text = _called(emitter)
        texts.append(text)
    constants = [_constant(name, value) for name, value in module.constants.items()]
    return "\n".join([*constants, *sorted(declared), *texts]), places, words


def _constant(name: str, value: bytes) -> str:
    text = "".join(f"\\{byte:02X}" for byte in value)
    return f'@{name} = constant [{len(value)} x i8] c"{text}", align 16'


def _label(name: str) -> str:
    return "L" + name.replace("$", "_").replace("%", "_")


def _allocations(function: Function) -> list[str]:
    found = [f"  %r.{_name(r)} = alloca {kind}" for r, kind in function.registers.items()]
    found += [f"  %slot.{s} = alloca [64 x i8], align 16" for s in sorted(function.slots)]
    return [*found, "  %carry = alloca i1", f"  %depot = alloca [{max(1, function.local_bytes)} x i8], align 16"]


def _entry(emitter: Emitter) -> tuple[str, int]:
    """Return the function of a kernel: registers are saved in the frame where threads wait; and the frame's words."""
    function = emitter.function
    if emitter.places and function.local_bytes:
        raise Unsupported("local memory in a kernel with barriers")
    live = _read_after(function, len(emitter.places)) if emitter.places else []
    where = {r: at.FRAME_HEAD + i for i, r in enumerate(sorted({r for names in live for r in names}))}
    body: list[str] = []
    for line in emitter.lines:
        if not line.startswith("  ; save "):
            body.append(line)
            continue
        place = int(line.split()[-1])
        body += _moved(live[place - 1], where, function, f"s{place}", save=True)
    head = ["define i32 @step(ptr %context, ptr %frame, i32 %place) {", *_allocations(function)]
    if emitter.places:
        cases = " ".join(f"i32 {i}, label %again{i}" for i in range(1, len(emitter.places) + 1))
        head.append(f"  switch i32 %place, label %start [{cases}]")
        for i, names in enumerate(live, 1):
            head += [f"again{i}:", *_moved(names, where, function, f"l{i}", save=False), f"  br label %place{i}"]
    else:
        head.append("  br label %start")
    return "\n".join([*head, "start:", *body, "}"]), at.FRAME_HEAD + len(where)


def _moved(names: Sequence[str], where: dict[str, int], function: Function, stem: str, *, save: bool) -> list[str]:
    out = []
    for i, register in enumerate(names):
        kind, name = function.registers[register], _name(register)
        source, target = (f"%r.{name}", f"%{stem}p{i}") if save else (f"%{stem}p{i}", f"%r.{name}")
        out.append(f"  %{stem}p{i} = getelementptr i64, ptr %frame, i64 {where[register]}")
        out.append(f"  %{stem}v{i} = load {kind}, ptr {source}")
        out.append(f"  store {kind} %{stem}v{i}, ptr {target}")
    return out


def _read_after(function: Function, count: int) -> list[list[str]]:
    """Return the registers that may be read after each place where threads wait."""
    from tests.cuda.ptx.instructions import waits

    body = function.body
    labels = {s.args[0]: i for i, s in enumerate(body) if not s.op}
    named = re.compile(r"%?[\w$.]+")

    def registers(texts: Sequence[str]) -> set[str]:
        return {w for text in texts for w in named.findall(text) if w in function.registers}

    reads, writes, follows = [], [], []
    for i, s in enumerate(body):
        stores = bool(s.op) and s.op[0] in ("st", "red", "bar", "barrier", "bra", "call")
        target = s.args[:1] if s.op and not stores else ()
        inside = registers([a for a in target if a.startswith("[")])
        reads.append(registers(s.args[len(target) :]) | inside | registers([s.guard]))
        writes.append(set() if s.guard else registers([a.replace("|", " ") for a in target if not a.startswith("[")]))
        name = s.op[0] if s.op else ""
        goes = [labels[s.args[0]]] if name == "bra" else []
        if not (name in ("bra", "ret", "exit") and not s.guard) and i + 1 < len(body):
            goes.append(i + 1)
        follows.append(goes)
    live: list[set[str]] = [set() for _ in body]
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(body))):
            after: set[str] = set().union(*(live[j] for j in follows[i])) if follows[i] else set()
            now = reads[i] | (after - writes[i])
            if now != live[i]:
                live[i], changed = now, True
    found = [sorted(live[i] | writes[i]) for i, s in enumerate(body) if s.op and waits(s)]
    assert len(found) == count, "a place where threads wait was not seen"
    return found


def _called(emitter: Emitter) -> str:
    function = emitter.function
    params = ", ".join(["ptr %context", "ptr %frame", "ptr %result", *(f"ptr %a{i}" for i in range(len(function.params)))])
    head = [f"define internal void @{function.name}({params}) {{", *_allocations(function), "  br label %start", "start:"]
    return "\n".join([*head, *emitter.lines, "}"])

