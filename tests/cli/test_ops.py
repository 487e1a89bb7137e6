"""pe ops finds by the names of other libraries, and shows what configs name by a type."""

from __future__ import annotations

import pytest

from pe_cli.cli.catalogue import names
from pe_cli.cli.catalogue_entries import things
from pe_cli.cli.framework_aliases import ELSEWHERE, MADE_OF, WRITTEN, here, instead_of, plain
from pe_cli.config.block_expansion import REGIONS
from tests import needs


@pytest.mark.parametrize(
    ("asked", "first", "some"),
    [
        ("Linear", "'Linear' is called fc here.", "fc(input, size"),
        ("Conv2D", "'Conv2D' is called conv2d here.", "num_filters"),
        ("CrossEntropyLoss", "'CrossEntropyLoss' is called softmax_with_cross_entropy here.", "ignore_index"),
        ("Gemm", "'Gemm' is called fc here.", "fc(input, size"),
        ("Adam", "# Adam", "| beta1 | 0.9 |"),
        ("adam", "# adam", "adam(Param, Grad"),
        ("one_cycle", "# one_cycle", "learning_rate: {type: one_cycle}"),
        ("beam", "# beam", "| beam_size | required |"),
        ("BeamSearchDecoder", "'BeamSearchDecoder' is called beam here.", "Written as `LAYER: {beam: BLOCK}`."),
        ("csv", "# csv", "data.train: {reader: csv}"),
        ("roc_auc", "# roc_auc", "## Metric"),
    ],
)
def test_one_entry(pe, asked: str, first: str, some: str):
    done = pe("ops", asked)
    assert done.out.startswith(first)
    assert some in done.out


def test_the_list_names_every_kind(pe):
    listed = pe("ops").out
    for kind in ("optimizer: SGD", "reader: annotations", "augmentation: ", "metric: "):
        assert kind in listed


def test_layers_that_run_blocks_are_told_with_all_keys():
    found = {thing.name: {key for key, _, _ in thing.keys} for thing in things() if "blocks" in thing.kind}
    assert found == {name: {*keys, *(["input"] if name == "scan" else [])} for name, keys in REGIONS.items()}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("l1_loss", "'l1_loss' is no layer here: it is made of elementwise_sub, abs, mean, in this order"),
        ("ReduceLROnPlateau", "'ReduceLROnPlateau' is no layer here: train.plateau"),
    ],
)
def test_what_is_no_layer_but_can_be_written(pe, asked: str, said: str):
    assert pe("ops", asked).out.startswith(said)


#: Names of torch and ONNX that nothing here stands for, by a part: other kernels, trees, texts, signals, bits, lists of tensors.
WITHOUT = (
    "adaptivelog", "alpha", "binarizer", "bit", "cast", "causal", "circular", "classifier", "col2im", "container", "cumprod", "det", "dft",
    "dict", "extractor", "flex", "fold", "fractional", "gradient", "hinge", "imagedecoder", "integer", "linearattention",
    "linearcrossentropy", "lppool", "margin", "map", "mel", "optional", "pad3d", "parameter", "qlinear", "quantize", "regex", "regressor",
    "rotary", "sequence", "stft", "string", "tree", "unpool", "vectorizer", "window",
)  # fmt: skip


def test_names_of_torch_and_onnx_find_something():
    torch, onnx = needs.package("torch"), pytest.importorskip("onnx")
    known = [*names(), *(thing.name for thing in things())]
    modules = [n for n in dir(torch.nn) if isinstance(getattr(torch.nn, n), type) and issubclass(getattr(torch.nn, n), torch.nn.Module)]
    asked = {*modules, *(schema.name for schema in onnx.defs.get_all_schemas())}
    lost = [n for n in sorted(asked) if not here(n, known) and not instead_of(n)]
    assert [n for n in lost if not any(part in plain(n) for part in WITHOUT)] == []


def test_a_name_that_is_nowhere(pe):
    done = pe("ops", "Conv9D")
    assert done.code == 2
    assert "there is no layer, op or type 'Conv9D'" in done.err
    assert "hint: did you mean" in done.err


def test_what_is_told_of_other_libraries_is_here():
    known = {*names(), *(thing.name for thing in things())}
    assert set(ELSEWHERE) <= known
    assert {part for parts in MADE_OF.values() for part in parts} <= known
    assert not [n for n in (*MADE_OF, *WRITTEN) if here(n, known)], "told twice"
    torch = needs.package("torch")
    modules = {plain(name) for name in dir(torch.nn)} | {plain(n) for n in dir(torch.optim)} | {plain(n) for n in dir(torch.nn.functional)}
    told = [name for name in ("Linear", "BatchNorm2d", "SiLU", "GELU", "BCEWithLogitsLoss", "MultiheadAttention") if here(name, known)]
    assert len(told) == 6
    assert all(plain(name) in modules for name in told)


def test_a_page_shows_the_op_that_its_layer_appends(pe, tmp_path):
    heads = [line for line in pe("ops", "lstm").out.splitlines() if line.startswith(("## ", "padded_lstm(", "lstm(Input"))]
    assert [head.partition("(")[0] for head in heads] == [
        "## Layer", "## Op", "padded_lstm", "## Another op of this name, which the layer does not use", "lstm",
    ]  # fmt: skip
    (tmp_path / "m.yaml").write_text(
        "name: m\nfeeds: {x: {shape: [8, 6]}}\nlayers:\n  rnn: {type: lstm, input: x, hidden_size: 4}\nfetches: [rnn.0]\n"
    )
    program = pe("graph", str(tmp_path / "m.yaml")).out
    assert "forward padded_lstm(" in program
    assert "forward lstm(" not in program
