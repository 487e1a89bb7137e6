"""Tokenizers of files."""

from __future__ import annotations

import builtins
import json

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.raw_cells import join_strings
from pe_cli.data.tokens.tokenizer_json import LIMIT, read
from pe_cli.data.tokens.tokenizer_kinds import open_tokens


def error(message, hint):
    return PeError(message, hint=hint, code=ExitCode.DATA)


def tokens_state(path):
    """Return the state of a file after a way through JSON."""
    return json.loads(json.dumps(read(path, error)))


@pytest.fixture
def written(tmp_path):
    made = Tokenizer(models.WordLevel({"[PAD]": 5, "[UNK]": 1, "a": 2, "b": 3, "[CLS]": 4}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 4)])
    made.enable_truncation(2)
    made.enable_padding(pad_id=5, pad_token="[PAD]")
    path = tmp_path / "tokenizer.json"
    made.save(str(path))
    return path


def test_its_ids_and_template_are_kept_but_not_its_lengths(written):
    tokens = open_tokens(tokens_state(written))
    found = tokens.encode_many(join_strings([b"a b c b", b""]), filled=3)
    assert found.ids.tolist() == [4, 2, 3, 1, 3, 4, 5, 5]
    assert found.offsets.tolist() == [0, 5, 8]
    plain = open_tokens(tokens_state(written), template=False)
    assert plain.encode("a b c b") == [2, 3, 1, 3]
    assert (found.unknown, tokens.padding, tokens.unknown, tokens.size) == (1, 5, 1, 6)


def test_pieces_are_what_each_id_adds(tmp_path):
    made = Tokenizer(models.BPE({"Ã": 0, "©": 1, "Ġ": 2, "x": 3}, []))
    from tokenizers import decoders

    made.decoder = decoders.ByteLevel()
    made.save(str(tmp_path / "t.json"))
    tokens = open_tokens(read(tmp_path / "t.json", error))
    # the two bytes of é; nothing can be said before the second
    assert tokens.pieces([3, 2, 0, 1]) == [b"x", b" ", b"", "é".encode()]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b"{", "is no tokenizer.json", id="cut off"),
        pytest.param(b"\xff\xfe", "is no tokenizer.json", id="not UTF-8"),
        pytest.param(b"[1]", "it is a list", id="another value"),
        pytest.param(b"{}", "it has no model", id="other JSON"),
        pytest.param(b'{"model": {"type": "Magic"}}', "tokenizers does not take it", id="an unknown model"),
        pytest.param(b"[" * 100_000, "is no tokenizer.json", id="deeply nested"),
    ],
)
def test_another_file_is_refused(tmp_path, content, said):
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(PeError, match=said) as caught:
        read(path, error)
    assert caught.value.code == ExitCode.DATA
    assert caught.value.hint


def test_a_file_that_is_too_large_is_refused(tmp_path):
    with (tmp_path / "t.json").open("wb") as file:
        file.truncate(LIMIT + 1)
    with pytest.raises(PeError, match="and a tokenizer has"):
        read(tmp_path / "t.json", error)


def test_without_the_package_its_name_is_said(written, monkeypatch):
    whole = builtins.__import__

    def without(name, *arguments, **named):
        if name == "tokenizers":
            raise ImportError(name)
        return whole(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(PeError, match="is not installed") as caught:
        read(written, error)
    assert caught.value.hint == "pip install 'pe-cli[text]'"
