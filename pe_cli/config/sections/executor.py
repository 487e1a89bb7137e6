"""`executor`: on which devices, with how many threads and in what precision a run computes."""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, StrictBool, WithJsonSchema

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import PathName

#: Devices and threads that a run may ask for; every one takes memory and a thread.
MAX_DEVICES = 256
#: Processes of one training.
MAX_PROCESSES = 4096


def _devices(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_DEVICES:
        return value
    raise ValueError(f"must be auto or a number of devices, 1 to {MAX_DEVICES}")


def _processes(value: object) -> int | Literal["auto"]:
    if value in ("auto", "mpi"):  # the second is what release candidates called it
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_PROCESSES:
        return value
    raise ValueError(f"must be auto or a number of processes, 1 to {MAX_PROCESSES}")


Devices = Annotated[
    int | Literal["auto"],
    PlainValidator(_devices),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": MAX_DEVICES}]}),
]
Processes = Annotated[
    int | Literal["auto"],
    PlainValidator(_processes),
    WithJsonSchema({"anyOf": [{"const": "auto"}, {"const": "mpi"}, {"type": "integer", "minimum": 1, "maximum": MAX_PROCESSES}]}),
]
Threads = Annotated[int, Field(strict=True, ge=0, le=MAX_DEVICES)]


class ExecutorSection(Section):
    """On which devices, in how many threads and processes a run computes."""

    type: Literal["parallel", "async"] = Field(
        default="parallel",
        description="parallel: devices share every batch; async: threads train one set of parameters on files of their own, "
        "without locks",
    )
    files: list[PathName] | None = Field(
        default=None, min_length=1, description="async: training files that threads take, instead of data.train.files"
    )
    threads: Annotated[int, Field(strict=True, ge=1, le=MAX_DEVICES)] | None = Field(
        default=None, description="async: threads; one per core when absent, and no more than files"
    )
    place: Literal["cpu", "cuda"] = Field(default="cpu", description="kind of device")
    precision: Literal["float32", "tf32", "bf16"] = Field(
        default="float32",
        description="bf16 stores values between products as bfloat16, in half of the bytes. Products and convolutions of these are by "
        "instructions for them on CPUs that have such (AMX; AVX512-BF16 of Zen 4 and later), and by tensor cores on CUDA; all else is "
        "computed in float32. "
        "tf32, on CUDA: matrix products use tensor cores, which round both factors to 11 significant bits on their "
        "way in. Sums, parameters and updates stay float32",
    )
    libraries: Literal["auto", "none"] = Field(
        default="auto",
        description="on CUDA: auto: cuBLASLt and cuDNN, where they are installed, take the place of our kernels for products, "
        "convolutions and attention that they are faster at on the card at hand; none: our kernels do everything",
    )
    devices: Devices = Field(
        default="auto", description="number of devices; auto: CPU_NUM, or else what is fastest on the cores of this process; one on CUDA"
    )
    processes: Processes = Field(
        default=1,
        description="processes that train one model and share every batch; auto: as many as pe launch, or mpiexec, starts. mpi says "
        "the same as auto",
    )
    peer_timeout: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] = Field(
        default=60.0,
        description="of several processes: seconds without an answer after which another process counts as lost (exit code 6)",
    )
    # Absent and 0 differ: 0 is a value of its own for exec_strategy, whose key this is another name for.
    num_threads: Threads | None = Field(default=None, description="the same as exec_strategy.num_threads")
    uneven_batch: Literal["weighted", "drop", "error"] = Field(
        default="weighted", description="what happens with a batch that cannot be split evenly"
    )
    # One more would not fit the signed 64-bit numbers that seeds are kept and passed to kernels as.
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**63)] = Field(
        default=0, description="of initial values, dropout and shuffling"
    )
    watchdog: Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)] = Field(
        default=0.0,
        description="seconds without progress after which a step is ended and what hangs is told (exit code 7); 0: never",
    )
    check_nan_inf: StrictBool = Field(
        default=False,
        description="look at every result of every op, and end at the first NaN or infinity with its name",
    )
    deterministic: StrictBool = Field(
        default=True,
        description="the same seed gives the same bits; false, on CUDA with libraries: auto: algorithms of libraries may be chosen whose "
        "last bits differ from run to run",
    )
    instructions: Literal["native", "portable"] = Field(
        default="native",
        description="native: all that this processor has; portable: those of x86-64-v3 alone, which give the same bits on any processor "
        "of Intel and AMD that has AVX2",
    )
