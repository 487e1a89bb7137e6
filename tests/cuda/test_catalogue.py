"""Every op of the catalogue runs on CUDA, but for those that a config never has there, each with its reason."""

from __future__ import annotations

from pe_cli.ops.define.registry import OPS, discover

discover()
#: Reason -> ops without a lowering of their own.
WITHOUT = {
    "launches of every round and of both branches are made of its regions": "cond scan while",
    "it gives on what it is given, which takes no kernel": "after",
    "it runs a Python function": "py_func py_func_grad py_func_free",
    "passes make it for CPUs alone, whose caches it is about": (
        "fused_conv2d_moments fused_conv2d_norm fused_norm_conv2d fused_norm_conv2d_back batch_norm_statistics lookup_sgd lookup_adam"
    ),
    "it is of parameter servers, which place: cuda refuses": (
        "recv fetch_barrier fake_init send send_barrier listen_and_serv ref_by_trainer_id split_byref split_selected_rows "
        "distributed_lookup_table"
    ),
    "only values tell how many rows it gives: programs of the Python names are cut there, and configs have as many rows as there may be": (
        "detection_map distribute_fpn_proposals collect_fpn_proposals generate_mask_labels generate_proposal_labels generate_proposals "
        "multiclass_nms matrix_nms locality_aware_nms rpn_target_assign retinanet_target_assign retinanet_detection_output "
        "ctc_align_sequences beam_search beam_search_decode even_sequences filter_by_instag filter_by_instag_grad where_index "
        "unique_with_counts unique_sorted split_rows merge_rows first_rows rows_like get_tensor_from_selected_rows"
    ),
    "it is there for imported ONNX files, and has kernels for CPUs alone: a plan for place: cuda names it": (
        "bitcast bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cumprod cumprod_grad grid_sample "
        "grid_sample_grad put_along_axis put_along_axis_grad take_along_axis take_along_axis_grad"
    ),
    "it is there for functions of PaddlePaddle 2.x, and has kernels for CPUs alone": (
        "bessel_i bessel_i_grad erfinv erfinv_grad lgamma lgamma_grad logcumsumexp logcumsumexp_grad polygamma polygamma_grad "
        "running_extreme"
    ),
    "it is of the Python names alone, whose lists and hashed texts lie on the host": (
        "list_of list_put list_get list_join list_first list_copy pyramid_hash pyramid_hash_grad"
    ),
}


def test_an_op_runs_on_cuda_or_there_is_a_reason():
    known = [name for names in WITHOUT.values() for name in names.split()]
    assert len(set(known)) == len(known)
    assert {d.name for d in OPS.values() if "cuda" not in d.lowerings} == set(known)
