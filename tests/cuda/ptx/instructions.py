"""What each instruction of PTX becomes in LLVM: by the PTX ISA, with rounding to nearest, denormal numbers and NaN kept."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.cuda.ptx import collectives
from tests.cuda.ptx import layout as at
from tests.cuda.ptx.parse import BITS, TYPES, Statement, Unsupported
from tests.cuda.ptx.translate import SPACES, Emitter, _label

Handler = Callable[[Emitter, Statement], None]
HANDLERS: dict[str, Handler] = {}
#: Instructions at which a thread waits for others.
WAITING = ("bar", "barrier", "shfl", "vote", "redux", "mma", "ldmatrix")

FLOAT_COMPARISONS = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule",
    "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip
UNSIGNED = {"lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}


def waits(statement: Statement) -> bool:
    """Return whether a thread waits for others at an instruction."""
    return statement.op[0] in WAITING


def instruction(e: Emitter, s: Statement) -> None:
    """Append an instruction.

    Raises:
        Unsupported: it is not known.
    """
    handler = HANDLERS.get(s.op[0])
    if handler is None:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    handler(e, s)


def handles(*names: str) -> Callable[[Handler], Handler]:
    def register(fn: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, fn))
        return fn

    return register


def suffix(kind: str) -> str:
    return {"float": "f32", "double": "f64"}.get(kind, kind)


def wide(kind: str) -> str:
    return {"i16": "i32", "i32": "i64", "i64": "i128"}[kind]


def result(e: Emitter, s: Statement, value: str, kind: str) -> None:
    e.write(s.args[0], value, kind, signed=s.op[-1].startswith("s"))


# --- control ----------------------------------------------------------------------------------------------------------


@handles("bra")
def bra(e: Emitter, s: Statement) -> None:
    e.end(f"br label %{_label(s.args[0])}")


@handles("ret", "exit")
def ret(e: Emitter, s: Statement) -> None:
    e.end("ret i32 0" if e.is_entry else "ret void")


@handles("bar", "barrier")
def bar(e: Emitter, s: Statement) -> None:
    if s.op[1] == "warp":
        collectives.arrive(e, s.args[0])
    elif s.op[:2] == ("barrier", "cta") or "sync" in s.op:
        if s.args[:1] != ("0",) or len(s.args) > 1:
            raise Unsupported(f"line {s.line}: a barrier of some threads")
        e.wait(at.FOR_BLOCK)
    else:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")


HANDLERS.update(
    {"shfl": collectives.shfl, "vote": collectives.vote, "redux": collectives.redux, "mma": collectives.mma}
    | {"ldmatrix": collectives.ldmatrix}
)


@handles("prefetch")
def nothing(e: Emitter, s: Statement) -> None:
    pass


@handles("membar", "fence")
def fence(e: Emitter, s: Statement) -> None:
    e.look("0", 0, at.FENCE)


@handles("call")
def call(e: Emitter, s: Statement) -> None:
    args = [a.strip("() \n") for a in s.args]
    back, name, given = (args[0], args[1], args[2:]) if s.args[0].startswith("(") else ("", args[0], args[1:])
    names = [n.strip() for text in given for n in text.split(",") if n.strip()]
    if name not in e.module.functions:
        raise Unsupported(f"line {s.line}: a call of {name}")
    texts = [f"ptr %slot.{n}" for n in names]
    e.emit(f"call void @{name}({', '.join(['ptr %context', 'ptr %frame', f'ptr %slot.{back}' if back else 'ptr null', *texts])})")


# --- moves ------------------------------------------------------------------------------------------------------------


@handles("mov")
def mov(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    if s.args[0].startswith("{"):
        parts = [p.strip() for p in s.args[0].strip("{}").split(",")]
        whole, part = e.read(s.args[1], f"i{BITS[kind]}"), f"i{BITS[kind] // len(parts)}"
        for i, register in enumerate(parts):
            moved = e.value(f"lshr i{BITS[kind]} {whole}, {i * BITS[part]}")
            e.write(register, e.value(f"trunc i{BITS[kind]} {moved} to {part}"), part)
        return
    if s.args[1].startswith("{"):
        parts = [p.strip() for p in s.args[1].strip("{}").split(",")]
        part, total = f"i{BITS[kind] // len(parts)}", "0"
        for i, register in enumerate(parts):
            longer = e.cast(e.read(register, part), part, f"i{BITS[kind]}")
            total = e.value(f"or i{BITS[kind]} {total}, {e.value(f'shl i{BITS[kind]} {longer}, {i * BITS[part]}')}")
        e.write(s.args[0], total, f"i{BITS[kind]}")
        return
    e.write(s.args[0], e.read(s.args[1], kind), kind)


@handles("cvta")
def cvta(e: Emitter, s: Statement) -> None:
    space = next((p for p in s.op if p in SPACES), "global")
    value = e.read(s.args[1], "i64")
    if space in ("shared", "local"):
        base = e.context(at.SHARED) if space == "shared" else e.value("ptrtoint ptr %depot to i64")
        value = e.value(f"{'sub' if 'to' in s.op else 'add'} i64 {value}, {base}")
    e.write(s.args[0], value, "i64")


def _access(e: Emitter, s: Statement, address: str, access: int) -> tuple[str, list[str], str]:
    """Return a pointer, the registers that a vector has, and their type."""
    space = next((p for p in s.op if p in SPACES), "")
    many = next((int(p[1]) for p in s.op if p in ("v2", "v4")), 1)
    operand = s.args[0] if access != at.WRITE else s.args[1]
    registers = [r.strip() for r in operand.strip("{}").split(",")] if many > 1 else [operand]
    kind = TYPES[s.op[-1]]
    return e.place_of(address, space, many * max(1, BITS[kind] // 8), access), registers, kind


@handles("ld", "ldu")
def ld(e: Emitter, s: Statement) -> None:
    pointer, registers, kind = _access(e, s, s.args[1], at.READ)
    for i, register in enumerate(registers):
        place = e.value(f"getelementptr {kind}, ptr {pointer}, i64 {i}")
        e.write(register, e.value(f"load {kind}, ptr {place}, align 1"), kind, signed=s.op[-1].startswith("s"))


@handles("st")
def st(e: Emitter, s: Statement) -> None:
    pointer, registers, kind = _access(e, s, s.args[0], at.WRITE)
    for i, register in enumerate(registers):
        place = e.value(f"getelementptr {kind}, ptr {pointer}, i64 {i}")
        e.emit(f"store {kind} {e.read(register, kind)}, ptr {place}, align 1")


@handles("atom", "red")
def atom(e: Emitter, s: Statement) -> None:
    args = s.args if s.op[0] == "atom" else ("_", *s.args)
    kind = TYPES[s.op[-1]]
    space = next((p for p in s.op if p in SPACES), "")
    pointer = e.place_of(args[1], space, BITS[kind] // 8, at.ATOMIC)
    what = next(p for p in s.op[1:] if p in ("cas", "add", "min", "max", "exch", "and", "or", "xor"))
    values = [e.read(a, kind) for a in args[2:]]
    if what == "cas":
        pair = e.value(f"cmpxchg ptr {pointer}, {kind} {values[0]}, {kind} {values[1]} seq_cst seq_cst")
        found = e.value(f"extractvalue {{{kind}, i1}} {pair}, 0")
    else:
        unsigned = not s.op[-1].startswith("s")
        name = {"exch": "xchg", "min": "umin" if unsigned else "min", "max": "umax" if unsigned else "max"}.get(what, what)
        if kind in ("float", "double"):
            name = {"add": "fadd", "exch": "xchg"}[what]
        found = e.value(f"atomicrmw {name} ptr {pointer}, {kind} {values[0]} seq_cst")
    e.write(args[0], found, kind)


# --- comparisons ------------------------------------------------------------------------------------------------------


@handles("setp")
def setp(e: Emitter, s: Statement) -> None:
    kind, comparison = TYPES[s.op[-1]], s.op[1]
    x, y = e.read(s.args[1], kind), e.read(s.args[2], kind)
    if kind in ("float", "double"):
        found = e.value(f"fcmp {FLOAT_COMPARISONS[comparison]} {kind} {x}, {y}")
    else:
        sign = "s" if s.op[-1].startswith("s") else "u"
        name = comparison if comparison in ("eq", "ne") else UNSIGNED.get(comparison, sign + comparison)
        found = e.value(f"icmp {name} {kind} {x}, {y}")
    targets = [t.strip() for t in s.args[0].split("|")]
    combined = next((p for p in s.op[2:] if p in ("and", "or", "xor")), "")
    for target, value in zip(targets, (found, e.value(f"xor i1 {found}, true")), strict=False):
        e.write(target, e.value(f"{combined} i1 {value}, {e.read(s.args[3], 'i1')}") if combined else value, "i1")


@handles("selp")
def selp(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    x, y, c = e.read(s.args[1], kind), e.read(s.args[2], kind), e.read(s.args[3], "i1")
    result(e, s, e.value(f"select i1 {c}, {kind} {x}, {kind} {y}"), kind)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def directed(s: Statement) -> str:
    """Return the rounding of an instruction where it is not to the nearest."""
    if "sat" in s.op:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    return next((p for p in s.op if p in ("rm", "rp", "rz")), "")


def rounded(e: Emitter, s: Statement, exact: str, rounding: str) -> None:
    """Write a double as the float below it, above it, or on the side of zero."""
    near = e.value(f"fptrunc double {exact} to float")
    back = e.value(f"fpext float {near} to double")
    far, nearest = (e.call("double", "llvm.fabs.f64", ("double", v)) for v in (exact, back))
    bits = e.value(f"bitcast float {near} to i32")
    larger, smaller = e.value(f"fcmp olt double {far}, {nearest}"), e.value(f"fcmp ogt double {far}, {nearest}")
    negative = e.value(f"fcmp olt double {exact}, 0.0")
    if rounding == "rz":
        less, more = larger, "false"
    else:
        down = negative if rounding == "rp" else e.value(f"xor i1 {negative}, true")
        less, more = e.value(f"and i1 {larger}, {down}"), e.value(f"and i1 {smaller}, {e.value(f'xor i1 {down}, true')}")
    moved = e.value(f"add i32 {bits}, {e.value(f'zext i1 {more} to i32')}")
    e.write(s.args[0], e.value(f"sub i32 {moved}, {e.value(f'zext i1 {less} to i32')}"), "i32")


def carried(e: Emitter, s: Statement, x: str, y: str) -> None:
    """Write x + y with the carry of the instruction before, or x - y with its borrow, and keep the next one."""
    kind, name = TYPES[s.op[-1]], s.op[0]
    twice = wide(kind)
    x, y = (e.value(f"zext {kind} {v} to {twice}") for v in (x, y))
    total = e.value(f"{'sub' if name.startswith('sub') else 'add'} {twice} {x}, {y}")
    if name in ("addc", "subc", "madc"):
        before = e.value(f"zext i1 {e.value('load i1, ptr %carry')} to {twice}")
        total = e.value(f"{'sub' if name == 'subc' else 'add'} {twice} {total}, {before}")
    if "cc" in s.op:
        over = e.value(f"lshr {twice} {total}, {BITS[kind]}")
        e.emit(f"store i1 {e.value(f'trunc {twice} {over} to i1')}, ptr %carry")
    e.write(s.args[0], e.value(f"trunc {twice} {total} to {kind}"), kind)


@handles("addc", "subc")
def with_carry(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    carried(e, s, e.read(s.args[1], kind), e.read(s.args[2], kind))


@handles("add", "sub", "div", "rem", "and", "or", "xor")
def binary(e: Emitter, s: Statement) -> None:
    kind, name = TYPES[s.op[-1]], s.op[0]
    x, y = e.read(s.args[1], kind), e.read(s.args[2], kind)
    if "cc" in s.op:
        carried(e, s, x, y)
        return
    if rounding := directed(s):
        if kind != "float":
            raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
        x, y = (e.value(f"fpext float {v} to double") for v in (x, y))
        rounded(e, s, e.value(f"f{name} double {x}, {y}"), rounding)
        return
    if kind in ("float", "double"):
        if name != "div":
            look_at_rounding(s)
        name = "f" + name
    elif name in ("div", "rem"):
        name = ("s" if s.op[-1].startswith("s") else "u") + name
    result(e, s, e.value(f"{name} {kind} {x}, {y}"), kind)


def look_at_rounding(s: Statement) -> None:
    """Refuse an operation that is not said to be rounded: machine code joins such a product with such a sum wherever it can."""
    if s.op[-1] in ("f32", "f64") and "rn" not in s.op:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}, which does not say that it is rounded")


def product(e: Emitter, s: Statement) -> tuple[str, str]:
    """Return x * y and its type: the low half, the high half or both."""
    kind = TYPES[s.op[-1]]
    x, y = e.read(s.args[1], kind), e.read(s.args[2], kind)
    if kind in ("float", "double"):
        return e.value(f"fmul {kind} {x}, {y}"), kind
    if "wide" not in s.op and "hi" not in s.op:
        return e.value(f"mul {kind} {x}, {y}"), kind
    twice, how = wide(kind), "sext" if s.op[-1].startswith("s") else "zext"
    x, y = (e.value(f"{how} {kind} {v} to {twice}") for v in (x, y))
    both = e.value(f"mul {twice} {x}, {y}")
    if "wide" in s.op:
        return both, twice
    return e.value(f"trunc {twice} {e.value(f'lshr {twice} {both}, {BITS[kind]}')} to {kind}"), kind


@handles("mul")
def mul(e: Emitter, s: Statement) -> None:
    if directed(s):
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    look_at_rounding(s)
    result(e, s, *product(e, s))


@handles("mad", "madc")
def mad(e: Emitter, s: Statement) -> None:
    if TYPES[s.op[-1]] in ("float", "double"):
        fma(e, s)
        return
    value, kind = product(e, s)
    if "cc" in s.op or s.op[0] == "madc":
        carried(e, s, value, e.read(s.args[3], kind))
        return
    result(e, s, e.value(f"add {kind} {value}, {e.read(s.args[3], kind)}"), kind)


@handles("fma")
def fma(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    values = [e.read(a, kind) for a in s.args[1:4]]
    if rounding := directed(s):
        if kind != "float":
            raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
        doubles = [("double", e.value(f"fpext float {v} to double")) for v in values]
        rounded(e, s, e.call("double", "llvm.fma.f64", *doubles), rounding)
        return
    result(e, s, e.call(kind, f"llvm.fma.{suffix(kind)}", *((kind, v) for v in values)), kind)


@handles("min", "max")
def extreme(e: Emitter, s: Statement) -> None:
    kind, name = TYPES[s.op[-1]], s.op[0]
    x, y = e.read(s.args[1], kind), e.read(s.args[2], kind)
    if kind in ("float", "double"):
        stem = f"llvm.{name}imum" if "NaN" in s.op else f"llvm.{name}num"
        result(e, s, e.call(kind, f"{stem}.{suffix(kind)}", (kind, x), (kind, y)), kind)
        return
    sign = "s" if s.op[-1].startswith("s") else "u"
    c = e.value(f"icmp {sign}{'lt' if name == 'min' else 'gt'} {kind} {x}, {y}")
    result(e, s, e.value(f"select i1 {c}, {kind} {x}, {kind} {y}"), kind)


@handles("shl", "shr")
def shift(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    x, by = e.read(s.args[1], kind), e.read(s.args[2], "i32")
    far = e.value(f"icmp uge i32 {by}, {BITS[kind]}")
    by = e.cast(by, "i32", kind)
    if s.op[0] == "shr" and s.op[-1].startswith("s"):
        by = e.value(f"select i1 {far}, {kind} {BITS[kind] - 1}, {kind} {by}")
        result(e, s, e.value(f"ashr {kind} {x}, {by}"), kind)
        return
    moved = e.value(f"{'shl' if s.op[0] == 'shl' else 'lshr'} {kind} {x}, {e.value(f'select i1 {far}, {kind} 0, {kind} {by}')}")
    result(e, s, e.value(f"select i1 {far}, {kind} 0, {kind} {moved}"), kind)


@handles("shf")
def funnel(e: Emitter, s: Statement) -> None:
    low, high, by = (e.read(a, "i32") for a in s.args[1:4])
    if "clamp" in s.op:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    name = "llvm.fshl.i32" if "l" in s.op else "llvm.fshr.i32"
    e.write(s.args[0], e.call("i32", name, ("i32", high), ("i32", low), ("i32", by)), "i32")


@handles("bfe")
def bfe(e: Emitter, s: Statement) -> None:
    if s.op[-1] not in ("u32", "u64"):
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    kind = TYPES[s.op[-1]]
    value, begin, count = e.read(s.args[1], kind), e.read(s.args[2], "i32"), e.read(s.args[3], "i32")
    moved = e.value(f"lshr {kind} {value}, {e.cast(begin, 'i32', kind)}")
    mask = e.value(f"sub {kind} {e.value(f'shl {kind} 1, ' + e.cast(count, 'i32', kind))}, 1")
    e.write(s.args[0], e.value(f"and {kind} {moved}, {mask}"), kind)


@handles("bfi")
def bfi(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    value, base, begin, count = e.read(s.args[1], kind), e.read(s.args[2], kind), e.read(s.args[3], "i32"), e.read(s.args[4], "i32")
    begin, count = e.cast(begin, "i32", kind), e.cast(count, "i32", kind)
    mask = e.value(f"shl {kind} {e.value(f'sub {kind} ' + e.value(f'shl {kind} 1, {count}') + ', 1')}, {begin}")
    put = e.value(f"and {kind} {e.value(f'shl {kind} {value}, {begin}')}, {mask}")
    kept = e.value(f"and {kind} {base}, {e.value(f'xor {kind} {mask}, -1')}")
    e.write(s.args[0], e.value(f"or {kind} {put}, {kept}"), kind)


@handles("not")
def invert(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    result(e, s, e.value(f"xor {kind} {e.read(s.args[1], kind)}, {'true' if kind == 'i1' else -1}"), kind)


@handles("neg")
def neg(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    x = e.read(s.args[1], kind)
    result(e, s, e.value(f"fneg {kind} {x}" if kind in ("float", "double") else f"sub {kind} 0, {x}"), kind)


@handles("abs")
def absolute(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    x = e.read(s.args[1], kind)
    if kind in ("float", "double"):
        result(e, s, e.call(kind, f"llvm.fabs.{suffix(kind)}", (kind, x)), kind)
    else:
        result(e, s, e.call(kind, f"llvm.abs.{kind}", (kind, x), ("i1", "false")), kind)


@handles("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")
def elementary(e: Emitter, s: Statement) -> None:
    kind, name = TYPES[s.op[-1]], s.op[0]
    x = e.read(s.args[1], kind)
    if name == "rcp":
        result(e, s, e.value(f"fdiv {kind} 1.0, {x}"), kind)
        return
    if name == "tanh":
        result(e, s, e.call(kind, "tanhf" if kind == "float" else "tanh", (kind, x)), kind)
        return
    stem = {"sqrt": "sqrt", "rsqrt": "sqrt", "ex2": "exp2", "lg2": "log2"}.get(name, name)
    found = e.call(kind, f"llvm.{stem}.{suffix(kind)}", (kind, x))
    result(e, s, e.value(f"fdiv {kind} 1.0, {found}") if name == "rsqrt" else found, kind)


@handles("copysign")
def copysign(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    sign, size = e.read(s.args[1], kind), e.read(s.args[2], kind)
    result(e, s, e.call(kind, f"llvm.copysign.{suffix(kind)}", (kind, size), (kind, sign)), kind)


@handles("clz", "popc", "brev")
def bits(e: Emitter, s: Statement) -> None:
    kind = TYPES[s.op[-1]]
    x = e.read(s.args[1], kind)
    if s.op[0] == "clz":
        found = e.call(kind, f"llvm.ctlz.{kind}", (kind, x), ("i1", "false"))
    else:
        found = e.call(kind, f"llvm.{'ctpop' if s.op[0] == 'popc' else 'bitreverse'}.{kind}", (kind, x))
    e.write(s.args[0], found, kind)


@handles("prmt")
def prmt(e: Emitter, s: Statement) -> None:
    """`prmt.b32 d, a, b, c`: four of the eight bytes of a and b; a number's fourth bit asks for its byte's sign instead."""
    if s.op[1:] != ("b32",):
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    low, high, numbers = (e.read(a, "i32") for a in s.args[1:])
    upper = e.value(f"shl i64 {e.cast(high, 'i32', 'i64')}, 32")
    both = e.value(f"or i64 {upper}, {e.cast(low, 'i32', 'i64')}")
    total = "0"
    for i in range(4):
        number = e.value(f"lshr i32 {numbers}, {4 * i}")
        shift = e.cast(e.value(f"shl i32 {e.value(f'and i32 {number}, 7')}, 3"), "i32", "i64")
        byte = e.value(f"trunc i64 {e.value(f'lshr i64 {both}, {shift}')} to i8")
        signed = e.value(f"icmp ne i32 {e.value(f'and i32 {number}, 8')}, 0")
        byte = e.value(f"select i1 {signed}, i8 {e.value(f'ashr i8 {byte}, 7')}, i8 {byte}")
        moved = e.value(f"shl i32 {e.cast(byte, 'i8', 'i32')}, {8 * i}")
        total = e.value(f"or i32 {total}, {moved}")
    e.write(s.args[0], total, "i32")


# --- conversions ------------------------------------------------------------------------------------------------------

ROUNDINGS = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}


def _nearest(e: Emitter, word: str, bits: int, *, even: bool) -> str:
    """Return the bits of a float rounded to so many bits fewer, i32; of ties to even, or away from zero. NaN and infinity stay."""
    half = str((1 << (bits - 1)) - even)
    if even:
        last = e.value(f"and i32 {e.value(f'lshr i32 {word}, {bits}')}, 1")
        half = e.value(f"add i32 {half}, {last}")
    rounded = e.value(f"and i32 {e.value(f'add i32 {word}, {half}')}, {-(1 << bits)}")
    finite = e.value(f"icmp ult i32 {e.value(f'and i32 {word}, {0x7FFFFFFF}')}, {0x7F800000}")
    return e.value(f"select i1 {finite}, i32 {rounded}, i32 {word}")


def narrow(e: Emitter, s: Statement) -> None:
    """`cvt.rna.tf32.f32 d, a` and `cvt.rn.bf16x2.f32 d, high, low`."""
    words = [e.read(a, "i32") for a in s.args[1:]]
    if s.op[1:] == ("rna", "tf32", "f32"):
        e.write(s.args[0], _nearest(e, words[0], 13, even=False), "i32")
    elif s.op[1:] == ("rn", "bf16x2", "f32"):
        high, low = (_nearest(e, w, 16, even=True) for w in words)
        high = e.value(f"and i32 {high}, -65536")
        e.write(s.args[0], e.value(f"or i32 {high}, {e.value(f'lshr i32 {low}, 16')}"), "i32")
    else:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")


@handles("cp")
def copy_async(e: Emitter, s: Statement) -> None:
    """`cp.async.how.shared.global [d], [a], size, bytes`, done at once: a thread may count on it no earlier than it waits."""
    if s.op[2] in ("commit_group", "wait_group"):
        return
    if s.op[1] != "async" or len(s.args) != 4:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    there, words = e.read(s.args[3], "i32"), []
    found = re.fullmatch(r"\[\s*([^\]+\s]+)\s*(?:\+\s*(-?\w+))?\s*\]", s.args[1])
    assert found
    for i in range(int(s.args[2]) // 4):
        slot, place = f"%{e.fresh('copied')}", f"[{found[1]}+{int(found[2] or '0', 0) + 4 * i}]"
        e.emit(f"{slot} = alloca i32")
        e.emit(f"store i32 0, ptr {slot}")

        def read(slot: str = slot, place: str = place) -> None:
            pointer = e.place_of(place, "global", 4, at.READ)
            e.emit(f"store i32 {e.value(f'load i32, ptr {pointer}, align 1')}, ptr {slot}")

        e.branch(e.value(f"icmp sgt i32 {there}, {4 * i}"), read)
        words.append(e.value(f"load i32, ptr {slot}"))
    target = e.place_of(s.args[0], "shared", int(s.args[2]), at.WRITE)
    for i, word in enumerate(words):
        e.emit(f"store i32 {word}, ptr {e.value(f'getelementptr i32, ptr {target}, i64 {i}')}, align 1")


@handles("cvt")
def cvt(e: Emitter, s: Statement) -> None:
    if "tf32" in s.op or "bf16x2" in s.op:
        narrow(e, s)
        return
    to, start = s.op[-2], s.op[-1]
    wanted, kind = TYPES[to], TYPES[start]
    x = e.read(s.args[1], kind)
    rounding = next((p for p in s.op if p in ROUNDINGS), "")
    floating = ("float", "double")
    if kind in floating and rounding:
        x = e.call(kind, f"llvm.{ROUNDINGS[rounding]}.{suffix(kind)}", (kind, x))
    if kind in floating and wanted in floating:
        if any(p in s.op for p in ("rm", "rp", "rz")):
            raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
        if wanted != kind:
            x = e.value(f"{'fpext' if wanted == 'double' else 'fptrunc'} {kind} {x} to {wanted}")
        if "sat" in s.op:
            x = e.call(wanted, f"llvm.maxnum.{suffix(wanted)}", (wanted, x), (wanted, "0.0"))
            x = e.call(wanted, f"llvm.minnum.{suffix(wanted)}", (wanted, x), (wanted, "1.0"))
    elif wanted in floating:
        x = e.value(f"{'sitofp' if start.startswith('s') else 'uitofp'} {kind} {x} to {wanted}")
    elif kind in floating:
        x = e.call(wanted, f"llvm.fpto{'s' if to.startswith('s') else 'u'}i.sat.{wanted}.{suffix(kind)}", (kind, x))
    else:
        x = e.cast(x, kind, wanted, signed=start.startswith("s"))
    e.write(s.args[0], x, wanted, signed=to.startswith("s"))
