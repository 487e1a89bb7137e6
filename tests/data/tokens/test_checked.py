"""Patterns and other parts of a tokenizer.json that native code could be made to hang or to fill the memory with."""

from __future__ import annotations

import json

import pytest

from pe_cli.core.errors import PeError
from pe_cli.data.tokens import tokenizer_json
from pe_cli.data.tokens.tokenizer_json_check import check, check_pattern

#: As their files have them.
KNOWN = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "GPT-4": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "GPT-4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "BLOOM": r" ?[^(\s|[.,!?\u2026\u3002])]+",
    "DeepSeek": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+",
    "ideographs": r"[\x{4e00}-\x{9fa5}]+",
    "CLIP": r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
}


@pytest.mark.parametrize("name", KNOWN)
def test_patterns_of_models_that_are_known_pass(name):
    check_pattern(KNOWN[name])


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$", "(a*)*", "(?:a|a)*b", "((ab?)*c)+", "(?:(x){2,})+", "(.*)\\1", "\\g<0>", "(?R)", "a*a*a*a*b", "(a{1000}){1000}",
        "a{5000}",
        "([ab]+,?)*", "(?i:(a+))+",
    ],
)  # fmt: skip
def test_patterns_that_may_take_very_long_are_refused(pattern):
    with pytest.raises(ValueError, match="its pattern"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"[+*)(]+",
        r"\(\+\)+",
        r"[]a]+",
        r"[^]a]*",
        r"a\{2\}",
        "",
        "(",
        ")",
        "[",
        "\\",
        "x|y|z",
        r"(ab)+",
        r"\d{1,3}(?=(\d{3})\b)",
    ],
)
def test_other_patterns_pass(pattern):
    check_pattern(pattern)


def replace(content):
    return {"type": "Replace", "pattern": {"String": "a"}, "content": content}


@pytest.mark.parametrize(
    ("part", "why"),
    [
        pytest.param({"normalizer": replace("b" * 65)}, "65|64 times as long", id="one replacement"),
        pytest.param(
            {"normalizer": {"type": "Sequence", "normalizers": [replace("aaa")] * 5}},
            "64 times as long",
            id="replacements of replacements",
        ),
        pytest.param(
            {"decoder": {"type": "Replace", "pattern": {"Regex": ""}, "content": "b" * 100}},
            "decoder",
            id="between all bytes",
        ),
        pytest.param({"padding": {"strategy": {"Fixed": 2**40}}}, "padding", id="padding"),
        pytest.param(
            {
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [{}] * 1000,
                    "special_tokens": {"x": {"ids": [1] * 1000}},
                }
            },
            "template adds",
            id="a template",
        ),
    ],
)
def test_what_fills_the_memory_is_refused(part, why):
    with pytest.raises(ValueError, match=why):
        check(part)


WORDS = {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "none"}


def write(tmp_path, **parts):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": WORDS, **parts}))
    return tokenizer_json.read(path, lambda message, hint: PeError(message, hint=hint))


def test_an_id_that_no_file_has_is_refused(tmp_path):
    with pytest.raises(PeError, match="the id 4,294,967,295, and ids are below"):
        write(tmp_path, model={**WORDS, "vocab": {"a": 2**32 - 1}})


def test_what_native_code_does_not_expect_is_a_data_error(tmp_path):
    from pe_cli.data.raw_cells import join_strings

    made = tokenizer_json.FileTokens(write(tmp_path))
    assert made.encode_many(join_strings([b"a"])).ids.tolist() == [0]
    with pytest.raises(PeError, match=r"tokenizers cannot encode a text: .*UNK"):
        made.encode_many(join_strings([b"c"]))
