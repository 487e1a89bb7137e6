"""BuildStrategy and ExecutionStrategy: the user's options for graph building and execution."""

from __future__ import annotations

from pe_cli.core.lazy_dataclass import dataclass


@dataclass(frozen=True)
class BuildStrategy:
    """How the multi-device graph is built. Names, meanings and defaults are fluid's; some are our own.

    Args:
        reduce_strategy: AllReduce sums gradients to every device, where each updates its own copy; Reduce sums each to its owner,
            which updates the one copy that all CPU devices share. Of several processes each owns rows of every parameter, with the
            optimizer's state of those. Shard is that, and each keeps its own rows of parameters alone between steps: all rows are there
            while ops use them. In one process it is AllReduce. Shard is our own.
        gradient_scale_strategy: CoeffNumDevice weighs each device's loss by its samples, One adds them up as they are, Customized
            takes the gradient of the loss as a feed.
        fuse_all_reduce_ops: sum gradients in buckets.
        fuse_all_reduce_bytes: size of a bucket; our own.
        use_hierarchical_allreduce: processes are numbered machine by machine, so that sums are taken inside machines first, and
            little of them crosses the network.
        fp16_allreduce: processes send gradients of float32 as float16, half of the bytes; each level of the tree rounds them to 11 bits.
            The name is that of fleet; whether sums over devices of one process are compressed is no question.
        fuse_all_optimizer_ops: one op updates all parameters of a kind, with their weight decay, and adds up their gradients;
            not with Reduce in one process. fluid's default is false.
        fuse_broadcast_ops: of fluid: join the broadcasts of Reduce. No graph here has any, as devices read parameters where they are;
            configs refuse true.
        fuse_bn_add_act_ops, fuse_bn_act_ops: batch_norm, the sum with another image and relu are one op, as are their gradients;
            fluid's default is false.
        fuse_bn_statistics: a convolution takes the statistics for the batch_norm after it, where CPU devices run the program; our own.
        fuse_bn_conv: a 1x1 or depthwise convolution that takes statistics applies the batch_norm and relu before it itself, so that
            their result is not kept; our own.
        fuse_conv_bn: a convolution applies the batch_norm after it, by running statistics, with relu and what is added before that, where
            CPU devices run the program; our own.
        fuse_relu_depthwise_conv: depthwise_conv2d cuts negative numbers of its input off itself.
        fuse_elewise_add_act_ops: elementwise_add and the activation of its result are one op, as are their gradients.
        simplify: constants are computed once, repeated ops once, and ops without effect not at all; our own.
        fuse_gemm_epilogue: mul or conv2d, a bias and relu are one op; fluid's default is false.
        enable_auto_fusion: pointwise ops that feed one another are one op; fluid's default is false.
        enable_addto: gradients of a variable that several ops read are added where they are made, without a temporary and a sum;
            fluid's default is false.
        fuse_grad_update: a gradient of weights that only sgd reads is subtracted by the op that makes it, and one of a table is taken
            together with sgd or adam, where one CPU device runs the program; our own.
        enable_inplace: ops may overwrite inputs that nobody needs any more.
        sync_batch_norm: statistics over the samples of all devices.
        enable_sequential_execution: every device runs its ops in the program's order.
        enable_backward_optimizer_op_deps: no parameter is updated before all gradients are there, but those of fuse_grad_update. Rows
            of a table's gradient may be joined while others are updated.
        remove_unnecessary_lock: if not, steps of different executors of the process never run at the same time.
        cache_runtime_context: keep what was prepared for batch shapes that are not in use when temporaries are dropped.
        data_layout: `auto` runs image operators channels-last inside, `keep` as the model writes them.
    """

    reduce_strategy: str = "AllReduce"
    gradient_scale_strategy: str = "CoeffNumDevice"
    fuse_all_reduce_ops: bool = True
    fuse_all_reduce_bytes: int = 4 << 20
    use_hierarchical_allreduce: bool = False
    fp16_allreduce: bool = False
    fuse_all_optimizer_ops: bool = True
    fuse_broadcast_ops: bool | None = None
    fuse_bn_add_act_ops: bool = True
    fuse_bn_act_ops: bool = True
    fuse_bn_statistics: bool = True
    fuse_bn_conv: bool = True
    fuse_conv_bn: bool = True
    fuse_relu_depthwise_conv: bool = False
    fuse_elewise_add_act_ops: bool = False
    simplify: bool = True
    fuse_gemm_epilogue: bool = True
    enable_auto_fusion: bool = True
    enable_addto: bool = True
    fuse_grad_update: bool = True
    enable_inplace: bool = True
    sync_batch_norm: bool = False
    enable_sequential_execution: bool = False
    enable_backward_optimizer_op_deps: bool = True
    remove_unnecessary_lock: bool = True
    cache_runtime_context: bool = False
    memory_optimize: bool = True
    debug_graphviz_path: str = ""
    data_layout: str = "auto"


@dataclass(frozen=True)
class ExecutionStrategy:
    """How the graph is scheduled.

    Args:
        num_threads: native threads, no unit; 0 means one per device, but no more than cores.
        num_iteration_per_drop_scope: steps between drops of cached plans' temporaries.
        num_iteration_per_run: steps that one call of `run` does with its batch.
        allow_op_delay: sums over devices wait until all other ready work is done.
        dry_run: go through the whole schedule without computing; what it costs is the scheduler itself.
    """

    num_threads: int = 0
    num_iteration_per_drop_scope: int = 100
    num_iteration_per_run: int = 1
    allow_op_delay: bool = False
    dry_run: bool = False
