"""What threads of a warp do together: each puts its operands into its mailbox, waits for the others, and looks into theirs.

There are two mailboxes, used in turn: who comes to the next collective may write while others still read. It cannot come to the one
after that before all have read.
"""

from __future__ import annotations

from tests.cuda.ptx import layout as at
from tests.cuda.ptx.parse import Statement, Unsupported
from tests.cuda.ptx.translate import Emitter


def arrive(e: Emitter, mask: str, *words: str) -> str:
    """Wait for the lanes of a mask, having put i32 words into the mailbox; return the mailbox's offset in words of a frame."""
    turn = e.value(f"load i64, ptr {e.frame(at.TURN)}")
    box = e.value(f"add i64 {e.value(f'mul i64 {turn}, {at.MAILBOX}')}, {at.MAIL}")
    for i, word in enumerate(words):
        place = e.frame(e.value(f"add i64 {box}, {i}"))
        e.emit(f"store i64 {e.value(f'zext i32 {word} to i64')}, ptr {place}")
    e.emit(f"store i64 {e.value(f'xor i64 {turn}, 1')}, ptr {e.frame(at.TURN)}")
    e.emit(f"store i64 {e.cast(e.read(mask, 'i32'), 'i32', 'i64')}, ptr {e.frame(at.MASK)}")
    e.wait(at.FOR_WARP)
    before = e.value(f"xor i64 {e.value(f'load i64, ptr {e.frame(at.TURN)}')}, 1")
    return e.value(f"add i64 {e.value(f'mul i64 {before}, {at.MAILBOX}')}, {at.MAIL}")


def lane(e: Emitter) -> str:
    """Return this thread's lane, i32."""
    return e.read("%laneid", "i32")


def mail(e: Emitter, box: str, of: str, word: int = 0) -> str:
    """Return a word of another lane's mailbox, i32; of: its lane, i32."""
    away = e.value(f"sext i32 {e.value(f'sub i32 {of}, {lane(e)}')} to i64")
    words = e.value(f"mul i64 {away}, {e.context(at.FRAME_WORDS)}")
    index = e.value(f"add i64 {words}, {e.value(f'add i64 {box}, {word}')}")
    return e.value(f"trunc i64 {e.value(f'load i64, ptr {e.frame(index)}')} to i32")


def shfl(e: Emitter, s: Statement) -> None:
    """`shfl.sync.mode.b32 d|p, a, b, c, mask`."""
    if s.op[1] != "sync":
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    mode = s.op[2]
    box = arrive(e, s.args[4], e.read(s.args[1], "i32"))
    by = e.value(f"and i32 {e.read(s.args[2], 'i32')}, 31")
    c, me = e.read(s.args[3], "i32"), lane(e)
    segment = e.value(f"and i32 {e.value(f'lshr i32 {c}, 8')}, 31")
    clamp, others = e.value(f"and i32 {c}, 31"), e.value(f"xor i32 {segment}, -1")
    least = e.value(f"and i32 {me}, {segment}")
    most = e.value(f"or i32 {least}, {e.value(f'and i32 {clamp}, {others}')}")
    if mode == "idx":
        source = e.value(f"or i32 {least}, {e.value(f'and i32 {by}, {others}')}")
    else:
        source = e.value(f"{ {'up': 'sub', 'down': 'add', 'bfly': 'xor'}[mode] } i32 {me}, {by}")
    inside = e.value(f"icmp {'sge' if mode == 'up' else 'sle'} i32 {source}, {most}")
    source = e.value(f"select i1 {inside}, i32 {source}, i32 {me}")
    targets = [t.strip() for t in s.args[0].split("|")]
    e.write(targets[0], mail(e, box, source), "i32")
    if len(targets) > 1:
        e.write(targets[1], inside, "i1")


def _lanes_of(e: Emitter, mask: str, box: str) -> list[tuple[str, str]]:
    """Return (whether a lane takes part, its word) of every lane; of those that don't, this lane's word."""
    out, me = [], lane(e)
    bits = e.read(mask, "i32")
    for i in range(at.LANES):
        takes_part = e.value(f"icmp ne i32 {e.value(f'and i32 {bits}, {1 << i if i < 31 else -(1 << 31)}')}, 0")
        of = e.value(f"select i1 {takes_part}, i32 {i}, i32 {me}")
        out.append((takes_part, mail(e, box, of)))
    return out


def vote(e: Emitter, s: Statement) -> None:
    """`vote.sync.mode d, {!}p, mask`."""
    if s.op[1] != "sync" or s.op[2] not in ("all", "any", "ballot"):
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    said = e.read(s.args[1].lstrip("!"), "i1")
    if s.args[1].startswith("!"):
        said = e.value(f"xor i1 {said}, true")
    box = arrive(e, s.args[2], e.value(f"zext i1 {said} to i32"))
    ballot, asked = "0", "0"
    for i, (takes_part, word) in enumerate(_lanes_of(e, s.args[2], box)):
        counts = e.value(f"select i1 {takes_part}, i32 {word}, i32 0")
        ballot = e.value(f"or i32 {ballot}, {e.value(f'shl i32 {counts}, {i}')}")
        bit = e.value(f"zext i1 {takes_part} to i32")
        asked = e.value(f"or i32 {asked}, {e.value(f'shl i32 {bit}, {i}')}")
    if s.op[2] == "ballot":
        e.write(s.args[0], ballot, "i32")
    else:
        e.write(s.args[0], e.value(f"icmp eq i32 {ballot}, {asked}" if s.op[2] == "all" else f"icmp ne i32 {ballot}, 0"), "i1")


def redux(e: Emitter, s: Statement) -> None:
    """`redux.sync.op.type d, a, mask` of integers."""
    what, kind = s.op[2], s.op[-1]
    names = {"add": "add", "and": "and", "or": "or", "xor": "xor"}
    if kind not in ("u32", "s32", "b32") or (what not in names and what not in ("min", "max")):
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    box = arrive(e, s.args[2], e.read(s.args[1], "i32"))
    neutral = {"add": "0", "or": "0", "xor": "0", "and": "-1"}.get(what) or _extreme(kind, what)
    total = neutral
    for takes_part, word in _lanes_of(e, s.args[2], box):
        value = e.value(f"select i1 {takes_part}, i32 {word}, i32 {neutral}")
        if what in names:
            total = e.value(f"{names[what]} i32 {total}, {value}")
        else:
            sign = "s" if kind == "s32" else "u"
            less = e.value(f"icmp {sign}{'lt' if what == 'min' else 'gt'} i32 {value}, {total}")
            total = e.value(f"select i1 {less}, i32 {value}, i32 {total}")
    e.write(s.args[0], total, "i32")


def _extreme(kind: str, what: str) -> str:
    low, high = (-(2**31), 2**31 - 1) if kind == "s32" else (0, -1)
    return str(high if what == "min" else low)


def ldmatrix(e: Emitter, s: Statement) -> None:
    """`ldmatrix.sync.aligned.m8n8.x4{.trans}.shared.b16 d, [a]`: a lane's two elements of each of four matrices, by rows of 16 bytes."""
    if "x4" not in s.op or s.op[-1] != "b16" or "shared" not in s.op:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    address = s.args[1].strip("[] ")
    box = arrive(e, "-1", e.read(address, "i32"))
    me = lane(e)
    group, member = e.value(f"lshr i32 {me}, 2"), e.value(f"and i32 {me}, 3")
    for i, target in enumerate(r.strip() for r in s.args[0].strip("{}").split(",")):
        word = "0"
        for k in range(2):
            row, column = group, e.value(f"add i32 {e.value(f'shl i32 {member}, 1')}, {k}")
            if "trans" in s.op:
                row, column = column, row
            begin = mail(e, box, e.value(f"add i32 {row}, {8 * i}"))
            at_byte = e.value(f"add i32 {begin}, {e.value(f'shl i32 {column}, 1')}")
            place = e.place_in_shared(e.value(f"zext i32 {at_byte} to i64"), 2, at.READ)
            half = e.value(f"zext i16 {e.value(f'load i16, ptr {place}, align 1')} to i32")
            word = e.value(f"or i32 {word}, {e.value(f'shl i32 {half}, {16 * k}')}")
        e.write(target, word, "i32")


#: Shape and type of a matrix product -> (rows of k that a register of B holds, whether two values share a register).
PRODUCTS = {
    ("m16n8k8", "tf32"): (8, False),
    ("m16n8k4", "tf32"): (4, False),
    ("m16n8k16", "bf16"): (16, True),
    ("m16n8k8", "bf16"): (8, True),
}


def mma(e: Emitter, s: Statement) -> None:
    """`mma.sync.aligned.shape.row.col.f32.type.type.f32 d, a, b, c`: D = A B + C, fragments as the PTX ISA lays them out."""
    shape = next((p for p in s.op if p.startswith("m16")), "")
    found = PRODUCTS.get((shape, s.op[-2]))
    if found is None or s.op[-1] != "f32" or "row" not in s.op or "col" not in s.op:
        raise Unsupported(f"line {s.line}: {'.'.join(s.op)}")
    depth, paired = found
    d, a, b, c = ([r.strip() for r in text.strip("{}").split(",")] for text in s.args)
    box = arrive(e, "-1", *(e.read(r, "i32") for r in (*a, *b)))
    me = lane(e)
    group, member = e.value(f"lshr i32 {me}, 2"), e.value(f"and i32 {me}, 3")
    per = 2 if paired else 1
    for i, (target, start) in enumerate(zip(d, c, strict=True)):
        total = e.read(start, "float")
        column = e.value(f"add i32 {e.value(f'shl i32 {member}, 1')}, {i % 2}")
        for k in range(depth):
            quarter, half = k // per % 4, k // (4 * per)
            of_a = e.value(f"add i32 {e.value(f'shl i32 {group}, 2')}, {quarter}")
            of_b = e.value(f"add i32 {e.value(f'shl i32 {column}, 2')}, {quarter}")
            x = _value(e, mail(e, box, of_a, i // 2 + 2 * half), k % 2 if paired else None)
            y = _value(e, mail(e, box, of_b, len(a) + half), k % 2 if paired else None)
            total = e.call("float", "llvm.fma.f32", ("float", x), ("float", y), ("float", total))
        e.write(target, total, "float")


def _value(e: Emitter, word: str, half: int | None) -> str:
    """Return the number in a register: tf32, whose last 13 bits are not looked at, or one of two bf16."""
    if half is None:
        word = e.value(f"and i32 {word}, -8192")
    else:
        word = e.value(f"shl i32 {word}, 16") if half == 0 else e.value(f"and i32 {word}, -65536")
    return e.value(f"bitcast i32 {word} to float")
