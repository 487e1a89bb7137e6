"""The least and the greatest that an op takes for a number: the limit itself is accepted, the next number beyond it refused by name.

What the limits are follows from what the numbers mean (there is no half of a window, a share lies in [0, 1]), and from the docs of fluid.
"""

from __future__ import annotations

import pytest

from pe_cli.core.errors import PeError
from pe_cli.ops.define.registry import OPS, discover
from tests.ops.support import build, sample_arrays

discover()
NEXT = 1e-6
#: The least, and op: attributes.
LEAST = [
    (1, """
        correlation: kernel_size stride1 stride2
        cosine_decay: step_each_epoch epochs
        cosine_restarts: T_0 T_mult
        deformable_psroi_pooling: pooled_height pooled_width output_dim sample_per_part
        depth_overlay: stride dilation depth
        depth_windows: ksize stride dilation
        detection_map: class_num
        distribute_fpn_proposals: refer_scale
        even_sequences: rows
        exponential_decay: decay_steps
        generate_mask_labels: num_classes resolution
        generate_proposal_labels: batch_size_per_im class_nums
        group_norm: groups
        hash: mod_by num_hash
        histogram: bins
        inverse_time_decay: decay_steps
        linear_lr_warmup: warmup_steps
        lookahead: k
        lookahead_start: k
        mean_iou: num_classes
        natural_exp_decay: decay_steps
        nce_cost: num_true_classes
        nearest_interp: out_h out_w
        noam_decay: d_model warmup_steps
        one_cycle: total_steps
        one_hot: depth
        padded_fpn_best: post_nms_topN
        padded_fpn_levels: refer_scale
        padded_locality_nms: keep_top_k
        padded_mask_labels: num_classes resolution
        padded_matrix_nms: keep_top_k
        padded_nms: keep_top_k
        padded_proposal_labels: batch_size_per_im class_nums
        padded_proposals: post_nms_topN
        padded_retinanet_output: keep_top_k
        polynomial_decay: decay_steps
        prroi_pool: pooled_height pooled_width
        psroi_pool: pooled_height pooled_width output_channels
        randperm: n
        roi_align: pooled_height pooled_width
        roi_perspective_transform: transformed_height transformed_width
        roi_pool: pooled_height pooled_width
        rpn_target_assign: rpn_batch_size_per_im
        sample_classes: num_neg_samples
        sample_logits: num_samples
        sequence_context: length
        sequence_enumerate: win_size
        sequence_reshape: new_dim
        sequence_topk_avg_pooling: channel_num
        top_k: k
        tree_patches: max_depth
        trilinear_interp: out_d out_h out_w
        varied_windows: channels
        yolo_box: class_num
        yolov3_loss: downsample_ratio"""),
    (0, """
        collect_fpn_proposals: post_nms_topN
        correlation: pad_size max_displacement
        delayed_step: begin
        depth_overlay: before
        flatten: axis
        warpctc: blank"""),
    (2, """
        padded_rpn_targets: rpn_batch_size_per_im
        pyramid_hash: pyramid_layer"""),
    (0.0, """
        gaussian_random: std
        gaussian_random_batch_size_like: std
        generate_proposal_labels: fg_fraction
        huber_loss: delta
        lstm: cell_clip proj_clip
        dropout: dropout_prob
        one_cycle: pct_start
        padded_proposal_labels: fg_fraction
        truncated_gaussian_random: std"""),
    (NEXT, """
        clip_by_norm: max_norm
        global_norm_scale: clip_norm
        one_cycle: max_lr div_factor final_div_factor
        roi_perspective_transform: spatial_scale
        rpn_target_assign: rpn_fg_fraction"""),
]  # fmt: skip
#: Shares and chances, at most 1.
SHARES = """
    dropout: dropout_prob
    generate_proposal_labels: fg_fraction
    one_cycle: pct_start
    padded_proposal_labels: fg_fraction
    rpn_target_assign: rpn_fg_fraction"""


def named(text: str) -> list[tuple[str, str]]:
    rows = [line.strip().partition(": ") for line in text.split("\n") if line.strip()]
    return [(op, attribute) for op, _, attributes in rows for attribute in attributes.split()]


CASES = [(*name, limit, limit - (1 if isinstance(limit, int) else NEXT)) for limit, text in LEAST for name in named(text)]
CASES += [(*name, 1.0, 1.0 + NEXT) for name in named(SHARES)]


@pytest.mark.parametrize(("op", "attribute", "limit", "beyond"), [pytest.param(*case, id="{} {} {}".format(*case)) for case in CASES])
def test_the_limit_is_accepted_and_what_is_beyond_refused(op, attribute, limit, beyond):
    definition, accepted, said = OPS[op], [], set()
    for sample in definition.samples:
        arrays = sample_arrays(definition, sample, "float32")
        for value in (limit, beyond):
            try:
                build(op, arrays, {**sample.attrs, attribute: value}, sample.outputs)
            except PeError as error:
                said.add((value, str(error)))
            else:
                accepted.append(value)
    assert set(accepted) == {limit}, said
