"""Replacements: functions of fluid.layers that are no layer of a model file, with the reason and what a file uses instead."""

from __future__ import annotations

_LOOPS = "it takes Python functions or blocks of a Python program"
_ARRAYS = "lists of tensors live in Python programs"
_READERS = "it reads from a Python program"
_SCAN = ("loops over the steps of rows of one length are a layer with blocks", "scan: pe ops scan")
_BEAM = ("search is a layer with a block", "beam: pe ops beam")
_SORTED = ("dynamic_lstm, dynamic_gru and scan need no sorted sequences", "leave it out")
_LIST = (_ARRAYS, "scan, which collects what its steps give: pe ops scan")
_DRAWN = ("distributions are objects of Python", "gaussian_random or uniform_random")
_READ = (_READERS, "data and feeds of the run file")
_SPARSE = ("row-sparse gradients are made and merged by themselves", "is_sparse: true of embedding")

#: Name -> why no model file has it, and what to use there.
REPLACEMENTS: dict[str, tuple[str, str]] = {
    "py_func": ("it runs a Python function, which no file can give", "use it from Python: fluid.layers.py_func"),
    **dict.fromkeys(("While", "while_loop"), (_LOOPS, "while: pe ops while")),
    **dict.fromkeys(("cond", "case", "switch_case", "Switch", "IfElse"), (_LOOPS, "if: pe ops if")),
    **dict.fromkeys(("StaticRNN", "DynamicRNN", "rnn", "RNNCell"), _SCAN),
    "LSTMCell": ("cells are objects of Python", "lstm, or lstm_unit in a scan"),
    "GRUCell": ("cells are objects of Python", "dynamic_gru, or gru_unit in a scan"),
    **dict.fromkeys(
        ("beam_search", "beam_search_decode", "BeamSearchDecoder", "BasicDecoder", "Decoder", "dynamic_decode", "DecodeHelper",
         "TrainingHelper", "GreedyEmbeddingHelper", "SampleEmbeddingHelper"), _BEAM,
    ),
    **dict.fromkeys(("create_array", "array_read", "array_write", "array_length", "tensor_array_to_tensor"), _LIST),
    **dict.fromkeys(("lod_rank_table", "max_sequence_len", "reorder_lod_tensor_by_rank"), _SORTED),
    **dict.fromkeys(("Normal", "Uniform", "Categorical", "MultivariateNormalDiag"), _DRAWN),
    **dict.fromkeys(("py_reader", "create_py_reader_by_data", "read_file", "double_buffer", "load"), _READ),
    **dict.fromkeys(("get_tensor_from_selected_rows", "merge_selected_rows"), _SPARSE),
    **{
        name: ("it makes a learning rate", f"learning_rate: {{type: {name}}} of the optimizer: pe ops {name}")
        for name in (
            "cosine_decay", "exponential_decay", "inverse_time_decay", "linear_lr_warmup", "natural_exp_decay", "noam_decay",
            "piecewise_decay", "polynomial_decay",
        )
    },
    "create_tensor": ("layers make their own outputs", "fill_constant, or create_parameter for one that lives between steps"),
    "create_global_var": ("layers make their own outputs", "create_parameter, for one that lives between steps"),
    "autoincreased_step_counter": ("schedules count steps by themselves", "learning_rate of the optimizer"),
    "Print": ("values are shown by what runs the model", "fetches, of the model and the run file"),
    "Assert": ("what must hold is checked by what runs the model", "executor.check_nan_inf of the run file, or fetches"),
}  # fmt: skip
