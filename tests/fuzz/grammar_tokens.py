"""`tokenizer.json` files: models, normalisers, pre-tokenisers, templates and decoders of every kind, and one value of them changed."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

NUMBERS = (0, 1, -1, 2, 255, 256, 2**16, 2**31 - 1, 2**32 - 1, 2**32, 2**63, 1e308, -0.5, 1.5)
TEXTS = (
    "",
    "a",
    "##",
    "\u2581",
    "\u0120",
    "<unk>",
    "<pad>",
    "é",
    "\ud800",
    "\0",
    "x" * 300,
    "aa",
    "(a+)+$",
    "(a|a)*b",
    "\\p{L}+",
    "[",
    "(?<!a)b",
    "a{1000}{1000}",
)
WORDS = ("<unk>", "<pad>", "[CLS]", "[SEP]", "a", "b", "ab", "abc", "##a", "##b", "\u2581a", " ", "é", "1", "\u0120a")
PATTERNS = (
    {"String": "a"},
    {"String": ""},
    {"Regex": "\\s+"},
    {"Regex": "(a+)+$"},
    {"Regex": ""},
    {"Regex": "(?:a|b|ab)(?:c|bcd)"},
    {"Regex": "["},
)
_BEHAVIOURS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")

Json = dict[str, Any]


def _vocabulary(draw: random.Random) -> dict[str, int]:
    words = draw.sample(WORDS, draw.randint(3, len(WORDS)))
    ids = list(range(len(words)))
    if draw.random() < 0.2:
        ids[draw.randrange(len(ids))] = draw.choice((0, 1, 1000, 2**20, 2**31 - 1, 2**32 - 1))
    return dict(zip(words, ids, strict=True))


def _model(draw: random.Random) -> Json:
    kind = draw.choice(("BPE", "WordPiece", "WordLevel", "Unigram"))
    vocabulary = _vocabulary(draw)
    if kind == "Unigram":
        pieces = [[word, draw.choice((0.0, -1.0, -1e300, -3.5))] for word in vocabulary]
        return {
            "type": kind,
            "unk_id": draw.choice((0, 0, 0, None, 99)),
            "vocab": pieces,
            "byte_fallback": draw.random() < 0.3,
        }
    made: Json = {
        "type": kind,
        "vocab": vocabulary,
        "unk_token": draw.choice(("<unk>", "<unk>", "<unk>", None, "none")),
    }
    if kind == "BPE":
        merges = [
            pair
            for pair in (["a", "b"], ["ab", "c"], ["é", "a"])
            if "".join(pair) in vocabulary and all(p in vocabulary for p in pair)
        ]
        made |= {
            "merges": draw.choice((merges, [" ".join(pair) for pair in merges])), "dropout": draw.choice((None, None, 0.5, 1.0)),
            "continuing_subword_prefix": draw.choice((None, "", "##")), "end_of_word_suffix": draw.choice((None, "", "</w>")),
            "fuse_unk": draw.random() < 0.3, "byte_fallback": draw.random() < 0.3, "ignore_merges": draw.random() < 0.3,
        }  # fmt: skip
    elif kind == "WordPiece":
        made |= {
            "continuing_subword_prefix": draw.choice(("##", "")),
            "max_input_chars_per_word": draw.choice((0, 3, 100)),
        }
    return made


def _normalizer(draw: random.Random, depth: int = 0) -> Json:
    maps = (
        draw.randbytes(draw.choice((0, 4, 40)))
        if draw.random() < 0.5
        else (8).to_bytes(4, "little") + draw.randbytes(30)
    )
    kinds: list[Json] = [
        {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        {"type": draw.choice(("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Nmt", "StripAccents", "ByteLevel"))},
        {"type": "Strip", "strip_left": True, "strip_right": True},
        {"type": "Replace", "pattern": draw.choice(PATTERNS), "content": draw.choice(("", "b", "aa", "a" * 1000))},
        {"type": "Prepend", "prepend": draw.choice(("\u2581", "", "a" * 1000))},
        {"type": "Precompiled", "precompiled_charsmap": draw.choice((base64.b64encode(maps).decode(), "", "!!"))},
    ]
    if depth < 3 and draw.random() < 0.4:
        return {
            "type": "Sequence",
            "normalizers": [_normalizer(draw, depth + 1) for _ in range(draw.choice((0, 1, 2, 5)))],
        }
    return draw.choice(kinds)


def _pre_tokenizer(draw: random.Random, depth: int = 0) -> Json:
    kinds: list[Json] = [
        {"type": draw.choice(("BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"))},
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": draw.random() < 0.5},
        {
            "type": "Split",
            "pattern": draw.choice(PATTERNS),
            "behavior": draw.choice(_BEHAVIOURS),
            "invert": draw.random() < 0.5,
        },
        {"type": "Punctuation", "behavior": draw.choice(_BEHAVIOURS)},
        {
            "type": "Metaspace",
            "replacement": draw.choice(("\u2581", "", "ab")),
            "prepend_scheme": draw.choice(("always", "first", "never")),
            "split": True,
        },
        {"type": "Digits", "individual_digits": True},
        {"type": "CharDelimiterSplit", "delimiter": draw.choice(("-", "", "ab"))},
        {"type": "FixedLength", "length": draw.choice((0, 1, 5))},
    ]
    if depth < 3 and draw.random() < 0.4:
        return {
            "type": "Sequence",
            "pretokenizers": [_pre_tokenizer(draw, depth + 1) for _ in range(draw.choice((0, 1, 3)))],
        }
    return draw.choice(kinds)


def _post_processor(draw: random.Random) -> Json:
    piece = {"SpecialToken": {"id": "[CLS]", "type_id": 0}}
    single = [piece] * draw.choice((1, 2, 100)) + [{"Sequence": {"id": "A", "type_id": 0}}] * draw.choice((1, 1, 0, 3))
    token = {
        "id": "[CLS]",
        "ids": [draw.choice((2, 2, 2**32 - 1))] * draw.choice((1, 1, 0, 100)),
        "tokens": ["[CLS]"] * draw.choice((1, 1, 0, 100)),
    }
    kinds: list[Json] = [
        {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {"[CLS]": token}},
        {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", draw.choice((2, 2**32 - 1))]},
        {
            "type": "RobertaProcessing",
            "sep": ["</s>", 2],
            "cls": ["<s>", 0],
            "trim_offsets": True,
            "add_prefix_space": True,
        },
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
    ]
    made = draw.choice(kinds)
    return {"type": "Sequence", "processors": [made] * draw.choice((0, 1, 3))} if draw.random() < 0.2 else made


def _decoder(draw: random.Random, depth: int = 0) -> Json:
    kinds: list[Json] = [
        {"type": draw.choice(("ByteLevel", "ByteFallback", "Fuse"))},
        {"type": "WordPiece", "prefix": draw.choice(("##", "")), "cleanup": True},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
        {"type": "BPEDecoder", "suffix": draw.choice(("</w>", ""))},
        {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": True},
        {
            "type": "Strip",
            "content": draw.choice(("a", " ")),
            "start": draw.choice((0, 1, 2**40)),
            "stop": draw.choice((0, 1, 2**63)),
        },
        {"type": "Replace", "pattern": draw.choice(PATTERNS), "content": draw.choice(("", "x" * 1000))},
    ]
    if depth < 2 and draw.random() < 0.3:
        return {"type": "Sequence", "decoders": [_decoder(draw, depth + 1) for _ in range(draw.choice((0, 1, 3)))]}
    return draw.choice(kinds)


def tokenizer(draw: random.Random) -> bytes:
    """Return a tokenizer.json; most of them have one odd value."""
    added = [
        {"id": draw.choice((i, i, 99, 2**32 - 1)), "content": word, "single_word": draw.random() < 0.2, "lstrip": False, "rstrip": True,
         "normalized": draw.random() < 0.5, "special": draw.random() < 0.7}
        for i, word in enumerate(draw.sample(("<unk>", "<pad>", "[CLS]", "new", "a", ""), draw.choice((0, 1, 3))))
    ]  # fmt: skip
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": draw.choice((0, 9))}
    padding = {
        "strategy": {"Fixed": draw.choice((4, 2**40))}, "direction": "Right", "pad_to_multiple_of": draw.choice((None, 0, 8)),
        "pad_id": 1, "pad_type_id": 0, "pad_token": draw.choice(("<pad>", "none")),
    }  # fmt: skip
    made: Json = {
        "version": "1.0", "truncation": draw.choice((None, None, cut)), "padding": draw.choice((None, None, padding)),
        "added_tokens": added, "normalizer": draw.choice((None, _normalizer(draw))),
        "pre_tokenizer": draw.choice((None, _pre_tokenizer(draw))),
        "post_processor": draw.choice((None, _post_processor(draw))), "decoder": draw.choice((None, _decoder(draw))), "model": _model(draw),
    }  # fmt: skip
    if draw.random() < 0.6:
        _change(draw, made)
    if draw.random() < 0.02:
        for _ in range(draw.choice((50, 120, 3000))):
            made["normalizer"] = {"type": "Sequence", "normalizers": [made["normalizer"]]}
    try:
        return json.dumps(made).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError):  # a part may have been put into itself
        return b'{"model":' * 5000


def _change(draw: random.Random, made: Json) -> None:
    places: list[tuple[Any, Any]] = []
    inside: list[Any] = [made]
    for each in inside:
        for key, value in each.items() if isinstance(each, dict) else enumerate(each):
            places.append((each, key))
            if isinstance(value, (dict, list)):
                inside.append(value)
    holder, key = draw.choice(places)
    value, other = holder[key], draw.choice(places)
    new = draw.choice((draw.choice(NUMBERS), draw.choice(TEXTS), None, True, [], {}, other[0][other[1]]))
    if isinstance(value, bool) or draw.random() < 0.3:
        holder[key] = new if new is not made else None
    elif isinstance(value, (int, float)):
        holder[key] = draw.choice(NUMBERS)
    elif isinstance(value, str):
        holder[key] = draw.choice(TEXTS)
    elif isinstance(holder, dict):
        del holder[key]
