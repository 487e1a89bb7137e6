"""pe ops finds by the names of other libraries, and shows what configs name by a type."""

from __future__ import annotations

import pytest

from pe_cli.cli.catalogue import names
from pe_cli.cli.elsewhere import ELSEWHERE, here, plain
from pe_cli.cli.things import things
from pe_cli.config.expand import REGIONS


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
    for kind in ("optimizer: SGD", "reader: csv", "augmentation: ", "metric: "):
        assert kind in listed


def test_layers_that_run_blocks_are_told_with_all_keys():
    found = {thing.name: {key for key, _, _ in thing.keys} for thing in things() if "blocks" in thing.kind}
    assert found == {name: {*keys, *(["input"] if name == "scan" else [])} for name, keys in REGIONS.items()}


def test_a_name_that_is_nowhere(pe):
    done = pe("ops", "Conv9D")
    assert done.code == 2
    assert "there is no layer, op or type 'Conv9D'" in done.err
    assert "hint: did you mean" in done.err


def test_what_is_told_of_other_libraries_is_here():
    known = {*names(), *(thing.name for thing in things())}
    assert set(ELSEWHERE) <= known
    torch = pytest.importorskip("torch")
    modules = {plain(name) for name in dir(torch.nn)} | {plain(n) for n in dir(torch.optim)} | {plain(n) for n in dir(torch.nn.functional)}
    told = [name for name in ("Linear", "BatchNorm2d", "SiLU", "GELU", "BCEWithLogitsLoss", "MultiheadAttention") if here(name, known)]
    assert len(told) == 6
    assert all(plain(name) in modules for name in told)
