"""`build_strategy` and `exec_strategy`: how the graph is built and scheduled; names and defaults are fluid's."""

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, StrictBool, WithJsonSchema

from pe_cli.config.sections.executor import Threads
from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Count


def _inside(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    # Components are looked at, not the text: `a..b` is an ordinary name.
    if value.startswith(("/", "~")) or "\0" in value or ".." in value.split("/"):
        raise ValueError("must stay in the run's folder", "a relative path without '..', for example graphs/")
    return value


InsideRun = Annotated[
    str, PlainValidator(_inside), WithJsonSchema({"type": "string", "pattern": r"^(?![/~])(?!(.*/)?\.\.(/|$))"})
]


class BuildSection(Section):
    """How the multi-device graph is built; names and defaults are fluid's."""

    UNAVAILABLE = (
        # The first four belong to NCCL and to fluid's launcher; here `executor.processes` says how many processes there are.
        "num_trainers", "trainer_id", "hierarchical_allreduce_inter_nranks", "nccl_comm_num", "enable_cuda_graph",
    )  # fmt: skip
    reduce_strategy: Literal["AllReduce", "Reduce", "Shard"] = Field(
        default="AllReduce",
        description="AllReduce: every device updates its copy; Reduce: each parameter has one owner; of several processes each has rows "
        "of every parameter, and the optimizer's state of those; Shard: of several processes each keeps its rows of the parameters and "
        "gradients, too, and gathers the others while layers use them",
    )
    gradient_scale_strategy: Literal["CoeffNumDevice", "One", "Customized"] = Field(
        default="CoeffNumDevice", description="the loss's gradient on each device: its share of the batch, 1, or a feed"
    )
    fuse_all_optimizer_ops: StrictBool = Field(
        default=True, description="one op updates all parameters of a kind; not with Reduce in one process; fluid's default is false"
    )
    fuse_broadcast_ops: StrictBool | None = Field(
        default=None, description="join the broadcasts of Reduce; no graph has any, and true is a mistake"
    )
    fuse_bn_add_act_ops: StrictBool = Field(
        default=True, description="batch_norm, the sum with another image and relu become one; fluid's default is false"
    )
    fuse_bn_act_ops: StrictBool = Field(
        default=True, description="batch_norm and relu become one; fluid's default is false"
    )
    fuse_bn_statistics: StrictBool = Field(
        default=True, description="a convolution takes the statistics for the batch_norm after it; on CPUs"
    )
    fuse_bn_conv: StrictBool = Field(
        default=True,
        description="1x1 and depthwise convolutions apply the batch_norm and relu before them; on CPUs, after fuse_bn_statistics",
    )
    fuse_conv_bn: StrictBool = Field(
        default=True,
        description="in evaluation, convolutions apply the batch_norm after them, with relu and what is added before that; on CPUs",
    )
    fuse_relu_depthwise_conv: StrictBool = Field(default=False, description="relu and depthwise_conv2d become one op")
    fuse_elewise_add_act_ops: StrictBool = Field(
        default=False, description="elementwise_add and the activation after it become one op"
    )
    simplify: StrictBool = Field(
        default=True,
        description="operators without effect are left out, repeated ones done once, constants known before",
    )
    fuse_gemm_epilogue: StrictBool = Field(
        default=True, description="mul or conv2d, the bias after it and relu become one; fluid's default is false"
    )
    enable_auto_fusion: StrictBool = Field(
        default=True, description="pointwise operators that feed one another become one; fluid's default is false"
    )
    enable_addto: StrictBool = Field(
        default=True,
        description="gradients of a variable that several ops read are added where they are made; fluid's default is false",
    )
    fuse_grad_update: StrictBool = Field(
        default=True, description="gradients of weights are subtracted where they are made, those of tables also by Adam; on one CPU device"
    )
    enable_inplace: StrictBool = Field(default=True, description="ops may overwrite inputs that nobody needs any more")
    sync_batch_norm: StrictBool = Field(default=False, description="batch_norm over the samples of all devices")
    enable_sequential_execution: StrictBool = Field(default=False, description="every device keeps the program's order")
    enable_backward_optimizer_op_deps: StrictBool = Field(
        default=True, description="no parameter is updated before all gradients are there, but those of fuse_grad_update"
    )
    memory_optimize: StrictBool = Field(default=True, description="temporaries share memory")
    debug_graphviz_path: InsideRun = Field(
        default="",
        description="what the names of the drawn graphs, in dot, begin with, in the run's folder: graphs/ is a folder there",
    )
    data_layout: Literal["auto", "keep"] = Field(
        default="auto", description="auto: images run channels-last inside; keep: as the model writes them"
    )
    remove_unnecessary_lock: StrictBool = Field(
        default=True, description="false: steps of different executors never run at the same time"
    )
    cache_runtime_context: StrictBool = Field(
        default=False, description="keep what was prepared for batch shapes that are not in use"
    )
    fuse_all_reduce_ops: StrictBool = Field(default=True, description="gradients are summed in buckets")
    fuse_all_reduce_bytes: Count = Field(default=4 << 20, description="bytes of a bucket")
    use_hierarchical_allreduce: StrictBool = Field(
        default=False, description="processes are numbered machine by machine, so that they sum inside machines first"
    )
    fp16_allreduce: StrictBool = Field(
        default=False, description="processes send gradients as float16: half of the bytes, 11 bits of every number, none above 65,504"
    )


class ExecSection(Section):
    """How the graph is scheduled; names and defaults are fluid's."""

    UNAVAILABLE = ("use_thread_barrier",)

    num_threads: Threads = Field(default=0, description="native threads; 0: one per device, but no more than cores")
    num_iteration_per_drop_scope: Count = Field(default=100, description="steps between drops of temporaries")
    num_iteration_per_run: Count = Field(default=1, description="steps that are done with each batch")
    allow_op_delay: StrictBool = Field(default=False, description="sums over devices wait for all other ready work")
    dry_run: StrictBool = Field(default=False, description="schedule without computing, to measure the scheduler")
