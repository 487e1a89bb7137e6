"""From a kernel for CUDA to PTX and machine code of one compute capability; no driver and no GPU is needed.

numba-cuda is the compiler: its front end and libnvvm make PTX, and nvJitLink makes a cubin of that. What they made is kept on disk
beside the kernels of the CPU, under a hash of the source, of the types, of the capability and of the compilers' versions; where it is
there, neither is imported. Nothing else imports numba.cuda, but for `front_end` and what emits its instructions.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import math
import re
import struct
import types as python_types
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.compiler import cache
from pe_cli.kernels.compiler.digest import reached
from pe_cli.kernels.compiler.garbage_collection import paused
from pe_cli.kernels.cuda import bfloat16_pointers
from pe_cli.kernels.cuda.language import Built, CudaIntrinsic, CudaKernel
from pe_cli.kernels.cuda.rounding import is_exact

#: (major, minor)
Capability = tuple[int, int]
#: Capabilities that a config is compiled for where none is named: A100, H100 and H200, B200.
USUAL: tuple[Capability, ...] = ((8, 0), (9, 0), (10, 0))
#: The first capability whose tensor cores take tf32 and bf16, and what of it a kernel's PTX may have.
CORES: Capability = (8, 0)
_CORES = re.compile(r"\b(?:mma\.sync|cp\.async|cvt\.rn\.bf16x2)\b")
#: How many blocks of a kernel a multiprocessor shall have room for, as its PTX says.
_ROOM = re.compile(r"\.minnctapersm\s+(\d+)")
#: What the hash of what is kept on disk begins with; a new number where its form changes.
FORM = "cuda 4"
#: Registers that the threads of a block may have together, and those that one has are a multiple of.
REGISTERS, REGISTER_STEP = 65536, 8
#: Bytes of an instruction of every capability since 7.0.
INSTRUCTION = 16
_PACKAGES = ("numba", "numba-cuda", "llvmlite", "cuda-bindings", "nvidia-nvvm", "nvidia-nvjitlink")
_HINT = "pip install 'pe-cli[cuda]'"


class NoCompiler(PeError):
    """The compiler is not installed."""


@dataclass(frozen=True)
class Usage:
    """What a kernel takes of a multiprocessor.

    Args:
        registers: of a thread.
        spills: bytes that a thread stores and loads because registers do not suffice.
        local: bytes of local memory of a thread, spills included.
        shared: bytes of shared memory of a block that the kernel declares.
        instructions: of the kernel's machine code, with what fills it up to whole lines.
    """

    registers: int
    spills: int
    local: int
    shared: int
    instructions: int


@dataclass(frozen=True)
class Cubin:
    """Machine code of a kernel.

    Args:
        image: what the driver loads.
        entry: the kernel's name in it.
        usage: what it takes.
    """

    image: bytes
    entry: str
    usage: Usage


def arch(capability: Capability) -> str:
    """Return the compilers' name of a capability, such as sm_90."""
    return f"sm_{capability[0]}{capability[1]}"


def capability_of(name: str) -> Capability:
    """Return the capability that a name such as sm_90 or 9.0 means.

    Raises:
        PeError: it is no such name.
    """
    found = re.fullmatch(r"(?:sm_)?(\d{1,2})\.?(\d)", name)
    if not found:
        raise PeError(f"{name!r} is no compute capability", hint="such as sm_80, sm_90 or sm_100")
    return int(found[1]), int(found[2])


def entry_of(built: Built, capability: Capability) -> str:
    """Return the name of a kernel in its PTX and cubin."""
    return f"pe_{_key(built, capability)}"


@functools.cache
def _key(built: Built, capability: Capability) -> str:
    kernel = built.kernel
    halves = repr(sorted(built.halves))
    rounding = repr(sorted(map(is_exact, (built.fn, *built.helpers))))
    form = (repr(kernel.params), repr(built.block), str(_resident(built)), built.dtype, built.second, halves, rounding)
    said = [kernel.name, *form, arch(capability), *_toolchain()]
    return hashlib.sha256("\0".join([*said, *reached(built.fn, built.dtype)]).encode()).hexdigest()[:32]


def _resident(built: Built) -> int:
    return built.kernel.resident if isinstance(built.kernel, CudaKernel) else 0


@functools.cache
def _toolchain() -> tuple[str, ...]:
    """Return the versions of all that makes PTX and machine code."""

    def version(name: str) -> str:
        try:
            return f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            return f"{name} of the system"

    return FORM, *map(version, _PACKAGES)


@functools.cache
def ptx(built: Built, capability: Capability) -> str:
    """Return the PTX of a kernel, from the cache or compiled now.

    Args:
        built: the kernel.
        capability: that it may use.

    Raises:
        PeError: the compiler is not installed or does not know the capability (exit code 5).
    """
    key = _key(built, capability)
    if body := cache.read(key):
        return body.decode()
    text = _compiled(built, capability, f"pe_{key}")
    cache.store(key, text.encode())
    return text


@functools.cache
def cubin(built: Built, capability: Capability) -> Cubin:
    """Return the machine code of a kernel, from the cache or compiled now; raises like `ptx`."""
    key = hashlib.sha256(f"cubin without spills of {_key(built, capability)}".encode()).hexdigest()[:32]
    entry = entry_of(built, capability)
    if body := cache.read(key):
        head, _, image = body.partition(b"\n")
        return Cubin(image, entry, Usage(**json.loads(head)))
    text = ptx(built, capability)
    made = _linked(text, capability, entry)
    # A kernel that spills gives up one resident block after the other until the registers of a thread suffice.
    while made.usage.spills and (looser := _with_fewer_blocks(text)):
        text = looser
        made = _linked(text, capability, entry)
    most = REGISTERS // math.prod(built.block)
    if made.usage.registers > most:  # no card would launch such a block
        made = _linked(text, capability, entry, f"-maxrregcount={most // REGISTER_STEP * REGISTER_STEP}")
    cache.store(key, json.dumps(asdict(made.usage)).encode() + b"\n" + made.image)
    return made


def is_kept(built: Built, capability: Capability) -> bool:
    """Return whether the PTX of a kernel is in the cache."""
    return bool(cache.read(_key(built, capability)))


# --- numba-cuda -------------------------------------------------------------------------------------------------------


def _compiled(built: Built, capability: Capability, entry: str) -> str:
    with _explained(capability):
        from numba import cuda, types

        from pe_cli.kernels.cuda.front_end import less_work, roundings

        args = [
            _pointer(element) if (element := built.element(i)) else getattr(types, built.number(kind))
            for i, kind in enumerate(built.kernel.params)
        ]
        with _target(capability), warnings.catch_warnings(), paused(), less_work(), roundings():
            warnings.simplefilter("ignore")
            fn = built.bound(cuda, functools.partial(_intrinsic, dtype=built.dtype), _helpers(capability))
            resident = _resident(built)
            bounds = (math.prod(built.block), resident) if resident else None
            text, _ = cuda.compile(fn, types.void(*args), device=False, abi="numba", cc=capability, output="ptx", launch_bounds=bounds)
    return _renamed(text, entry)


@functools.cache
def _helpers(capability: Capability) -> dict[python_types.FunctionType, Any]:
    """Return helpers that numba-cuda has compiled for a capability: most kernels call some of the same few."""
    del capability  # what it is kept under
    return {}


def _renamed(text: str, entry: str) -> str:
    """Return PTX whose names do not depend on what else this process has compiled, without numba's environments."""
    found = re.search(r"\.visible \.entry (\w+)\(", text)
    assert found, "PTX without an entry"
    lines = [line for line in text.replace(found[1], entry).splitlines() if "NumbaEnv" not in line and not line.startswith("//")]
    for i, name in enumerate(dict.fromkeys(re.findall(r"\b_?cudapy_smem_[\w$]+|\b_ZN[\w$]+", "\n".join(lines)))):
        lines = [re.sub(rf"\b{re.escape(name)}(?![\w$])", f"name_{i}", line) for line in lines]
    return "\n".join(line for line in lines if line.strip()) + "\n"


def _pointer(element: str) -> Any:
    """Return numba-cuda's type of a pointer to elements."""
    from numba import types

    return bfloat16_pointers.pointer() if element == BFLOAT16 else types.CPointer(getattr(types, element))


def _intrinsic(value: CudaIntrinsic, dtype: str) -> Any:
    """Return numba-cuda's form of an intrinsic, which calls `value.emit`; where it takes a pointer to T, one to bfloat16 will do."""
    from numba import types
    from numba.cuda.extending import intrinsic

    half = bfloat16_pointers.pointer()

    def type_of(name: str) -> Any:
        if name.endswith("*"):
            return _pointer({"T": dtype, "bool": "uint8"}.get(name[:-1], name[:-1]))
        if name[0].isdigit():
            return types.UniTuple(type_of(name[1:]), int(name[0]))
        return types.void if name == "void" else getattr(types, {"T": dtype, "bool": "uint8"}.get(name, name))

    returns, wanted = type_of(value.returns), [type_of(a) for a in value.args]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out = value.emit(python_types.SimpleNamespace(builder=builder, dtype=dtype), list(args))
        return context.get_dummy_value() if value.returns == "void" else out

    def typer(*given: Any) -> Any:
        taken = [g if g == half and name == "T*" else w for g, w, name in zip(given, wanted, value.args, strict=True)]
        return returns(*taken), codegen

    names = ", ".join(f"a{i}" for i in range(len(wanted)))
    space: dict[str, Any] = {"typer": typer}
    exec(f"def {value.name}(context, {names}):\n    return typer({names})\n", space)  # our own text: names of ours only
    return intrinsic(space[value.name])


@contextlib.contextmanager
def _target(capability: Capability) -> Iterator[None]:
    """Let numba-cuda compile helpers for a capability: it would ask the driver for that of the device."""
    from numba.cuda import dispatcher

    held = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: python_types.SimpleNamespace(compute_capability=capability)
    try:
        yield
    finally:
        dispatcher.get_current_device = held


@contextlib.contextmanager
def _explained(capability: Capability) -> Iterator[None]:
    """Say which compiler is missing, or that it does not know the capability."""
    try:
        yield
    except ImportError as error:
        raise NoCompiler(f"no compiler for CUDA: {_first_line(error)}", hint=_HINT, code=ExitCode.DEVICE) from None
    except Exception as error:
        kind = type(error).__name__  # classes of modules that are there only where the compiler is
        if kind == "DynamicLibNotFoundError":
            raise NoCompiler(f"no compiler for CUDA: {_first_line(error)}", hint=_HINT, code=ExitCode.DEVICE) from None
        if kind in ("CCSupportError", "nvvmError", "nvJitLinkError"):
            raise PeError(
                f"the compiler does not take {arch(capability)}: {_first_line(error)}",
                hint=f"it is that of {', '.join(_toolchain()[-2:])}",
                code=ExitCode.DEVICE,
            ) from None
        raise


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# --- nvJitLink --------------------------------------------------------------------------------------------------------


def _linked(text: str, capability: Capability, entry: str, *more: str) -> Cubin:
    if capability < CORES and _CORES.search(text):
        raise PeError(
            f"tensor cores for precision tf32 and bf16 need a card of {arch(CORES)} or later, and this is for {arch(capability)}",
            hint="executor.precision: float32",
            code=ExitCode.DEVICE,
        )
    with _explained(capability):
        from cuda.bindings import nvjitlink

        options = [f"-arch={arch(capability)}", "-verbose", *more]
        handle = nvjitlink.create(len(options), options)
        try:
            data = text.encode()
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, data, len(data), entry)
            nvjitlink.complete(handle)
            image = bytearray(nvjitlink.get_linked_cubin_size(handle))
            nvjitlink.get_linked_cubin(handle, image)
            log = bytearray(nvjitlink.get_info_log_size(handle))
            nvjitlink.get_info_log(handle, log)
        finally:
            nvjitlink.destroy(handle)
    return Cubin(bytes(image), entry, _usage(log.decode(errors="replace"), text, bytes(image)))


def _with_fewer_blocks(text: str) -> str:
    """Return PTX of a kernel of which a multiprocessor has room for one block less, so that threads have more registers; or nothing."""
    found = _ROOM.search(text)
    blocks = int(found[1]) - 1 if found else 0
    return _ROOM.sub(f".minnctapersm {blocks}", text) if blocks else ""


def _usage(log: str, text: str, image: bytes) -> Usage:
    """Return what the log of a link says of its only kernel, and its PTX of shared memory, to which the card adds what it reserves."""

    def most(pattern: str) -> int:
        return max(map(int, re.findall(pattern, log)), default=0)

    spills = most(r"(\d+) bytes spill stores") + most(r"(\d+) bytes spill loads")
    shared = sum(map(int, re.findall(r"\.shared [^;]*\[(\d+)\];", text)))
    local = most(r"(\d+) bytes stack frame")
    return Usage(most(r"[Uu]sed (\d+) registers"), spills, local, shared, sum(map(len, code_of(image))) // INSTRUCTION)


def code_of(image: bytes) -> list[bytes]:
    """Return the sections of an ELF file that hold code."""
    # Header of ELF64: e_shoff at byte 40; e_shentsize, e_shnum and e_shstrndx from byte 58 on.
    (table,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    rows = [struct.unpack_from("<IIQQQQ", image, table + i * size) for i in range(count)]
    # A row is sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size.
    texts = rows[names][4]
    return [image[row[4] : row[4] + row[5]] for row in rows if image.startswith(b".text.", texts + row[0])]


