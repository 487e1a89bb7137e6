"""Losses of classes that are drawn or learned: nce, sampled softmax, center_loss, teacher_student_sigmoid_loss."""

from __future__ import annotations

import numpy as np

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.initializer import NumpyArray
from pe_cli.program.ir import Variable
from pe_cli.program.param_attr import ParamAttr


@layer
def nce(
    input: Variable,
    label: Variable,
    num_total_classes: int,
    sample_weight: Variable | None = None,
    param_attr: ParamAttr | None = None,
    bias_attr: ParamAttr | bool | None = None,
    num_neg_samples: int | None = None,
    name: str | None = None,
    sampler: str = "uniform",
    custom_dist: list[float] | None = None,
    seed: int = 0,
    is_sparse: bool = False,
) -> Variable:
    """Measure how badly the label's class is told from a few classes that are drawn, instead of from all.

    Args:
        input: [batch, width].
        label: [batch, labels] int64.
        num_total_classes: classes that there are.
        sample_weight: [batch, 1], what each row counts.
        param_attr: of the classes' rows, [num_total_classes, width]; Xavier by default.
        bias_attr: of their biases, [num_total_classes, 1]; 0 by default; False for none.
        num_neg_samples: classes that are drawn for each row, at least 1; 10 by default.
        name: prefix of the names of the parameters.
        sampler: uniform; log_uniform, where small classes are drawn more often; or custom_dist.
        custom_dist: with that, the probability of each class.
        seed: own seed, the same classes at every step; 0 for new ones at every step.
        is_sparse: the gradients of the parameters have only the rows of classes that were drawn.

    Returns:
        [batch, 1], in nats, divided by num_neg_samples + 1.

    Raises:
        PeError: shapes or dtypes that do not fit, or a sampler that does not go with custom_dist.

    Source:
        fluid.layers.nce; Gutmann and Hyvarinen 2010.
    """
    helper = LayerHelper("nce", name)
    if (sampler == "custom_dist") != (custom_dist is not None):
        raise helper.error("nce: custom_dist goes with sampler: custom_dist, and only with it")
    helper.check_rank(input, "input", 2, "[batch, width]")
    drawn, width, truths = 10 if num_neg_samples is None else num_neg_samples, input.shape[1], label.shape[-1]
    w = helper.parameter(param_attr, (num_total_classes, width), input.dtype)
    bias = None if bias_attr is False else helper.parameter(bias_attr, (num_total_classes, 1), input.dtype, is_bias=True)
    shares = None
    if custom_dist is not None:
        values = np.asarray(custom_dist, np.float32)
        if values.shape != (num_total_classes,) or (values < 0).any() or not values.any():
            raise helper.error(f"nce: custom_dist needs {num_total_classes} numbers of at least 0, got {len(values)}")
        # The given distribution is kept as a parameter that nobody trains, so that checkpoints have it.
        own = ParamAttr(trainable=False)
        shares = helper.parameter(own, values.shape, input.dtype, default=NumpyArray(values))
    attrs = {
        "num_total_classes": num_total_classes, "num_neg_samples": drawn, "sampler": sampler, "seed": seed, "dtype": input.dtype,
    }  # fmt: skip
    # The label's own classes come first, then those that are drawn, in one list for each sample.
    samples, expected = helper.op("sample_classes", {"Label": label, "CustomDistProbs": shares}, attrs, ("Samples", "Expected"))
    rows = helper.one("lookup_table_v2", {"W": w, "Ids": samples}, {"is_sparse": is_sparse})
    block = helper.one("reshape", {"X": input}, {"shape": [0, 1, width]})
    # Only the rows of classes that are looked at are multiplied; a product with all classes is what sampling avoids.
    each = helper.one("expand", {"X": block}, {"expand_times": [1, truths + drawn, 1]})
    logits = helper.one("reduce_sum", {"X": helper.one("elementwise_mul", {"X": rows, "Y": each})}, {"dim": [2]})
    if bias is not None:
        own_bias = helper.one("lookup_table_v2", {"W": bias, "Ids": samples}, {"is_sparse": is_sparse})
        logits = helper.one("elementwise_add", {"X": logits, "Y": helper.one("squeeze", {"X": own_bias}, {"axes": [2]})})
    cost = helper.one("nce_cost", {"Logits": logits, "Expected": expected}, {"num_true_classes": truths}, "Cost")
    if sample_weight is not None:
        weight = helper.one("reshape", {"X": sample_weight}, {"shape": [-1, 1]})
        cost = helper.one("elementwise_mul", {"X": cost, "Y": weight})
    # By all that was looked at, one true class and those drawn, as in the original.
    return helper.one("scale", {"X": cost}, {"scale": 1.0 / (drawn + 1)})


@layer
def sampled_softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    num_samples: int,
    num_true: int = 1,
    remove_accidental_hits: bool = True,
    use_customized_samples: bool = False,
    customized_samples: Variable | None = None,
    customized_probabilities: Variable | None = None,
    seed: int = 0,
) -> Variable:
    """Measure how unlikely the label is under the softmax of its logit and those of a few classes that are drawn.

    Args:
        logits: [batch, classes], in nats.
        label: [batch, num_true] int64.
        num_samples: different classes that are drawn, small ones more often, the same for all rows.
        num_true: labels of a row.
        remove_accidental_hits: a drawn class that is a label counts nothing.
        use_customized_samples: classes are given instead of drawn.
        customized_samples: [batch, num_true + num_samples] int64, the labels first.
        customized_probabilities: of the same sizes; how often each is expected.
        seed: own seed, the same classes at every step; 0 for new ones at every step.

    Returns:
        [batch, 1], in nats.

    Raises:
        PeError: shapes or dtypes that do not fit, or samples without use_customized_samples, or the other way round.

    Source:
        fluid.layers.sampled_softmax_with_cross_entropy; Jean et al. 2015.
    """
    helper = LayerHelper("sampled_softmax_with_cross_entropy")
    if use_customized_samples != (customized_samples is not None) or use_customized_samples != (customized_probabilities is not None):
        what = "customized_samples and customized_probabilities go with use_customized_samples, and only with it"
        raise helper.error(f"{helper.layer_type}: {what}")
    if label.shape[-1] != num_true:
        raise helper.error(f"{helper.layer_type}: num_true is {num_true}, but label is {label}")
    inputs = {
        "Logits": logits, "Labels": label, "CustomizedSamples": customized_samples, "CustomizedProbabilities": customized_probabilities,
    }  # fmt: skip
    attrs = {"num_samples": num_samples, "remove_accidental_hits": remove_accidental_hits, "seed": seed}
    sampled, _ = helper.op("sample_logits", inputs, attrs, ("SampledLogits", "Samples"))
    # A softmax over the label's logit and those drawn; `sample_logits` has corrected them by how likely each was to be drawn.
    log = helper.one("log_softmax", {"X": sampled})
    own = helper.one("slice", {"Input": log}, {"axes": [1], "starts": [0], "ends": [num_true]})
    cost = helper.one("reduce_sum", {"X": own}, {"dim": [1], "keep_dim": True})
    return helper.one("scale", {"X": cost}, {"scale": -1.0 / num_true})


@layer
def center_loss(
    input: Variable, label: Variable, num_classes: int, alpha: float, param_attr: ParamAttr | None = None, update_center: bool = True
) -> Variable:
    """Measure how far features are from the centers of their classes, and let the centers follow.

    Args:
        input: [batch, width].
        label: [batch, 1] int64.
        num_classes: classes that there are.
        alpha: how fast the centers follow, no unit.
        param_attr: of the centers, [num_classes, width]; Xavier by default.
        update_center: let the centers follow.

    Returns:
        [batch, 1]: half of the squared distance.

    Raises:
        PeError: shapes or dtypes that do not fit; in a step, a label out of range.

    Source:
        fluid.layers.center_loss; Wen et al. 2016.
    """
    helper = LayerHelper("center_loss")
    attrs = {"shape": [1], "dtype": input.dtype, "value": float(alpha)}
    return follow_centers(helper, input, label, num_classes, helper.one("fill_constant", {}, attrs), param_attr, update_center)


def follow_centers(
    helper: LayerHelper, input: Variable, label: Variable, classes: int, rate: Variable, attr: ParamAttr | None, update: bool
) -> Variable:
    """Append center_loss with a rate that is a variable."""
    helper.check_rank(input, "input", 2, "[batch, width]")
    centers = helper.parameter(attr, (classes, input.shape[1]), input.dtype)
    # Centers move by a rule of their own, in the op, and not by the optimizer.
    centers.stop_gradient = True
    inputs = {"X": input, "Label": label, "Centers": centers, "CenterUpdateRate": rate}
    attrs = {"cluster_num": classes, "need_update": update}
    # The op moves the centers where they are, so the parameter is input and output at once.
    return helper.op("center_loss", inputs, attrs, ("Loss", "SampleCenterDiff"), {"CentersOut": centers})[0]
