"""Kinds whose inputs are made by a grammar: a whole of its format, of which one thing is changed behind the first checks.

Length and checksums are made anew where a reader looks at them first, so that the damage is seen by what lies behind. An input depends on
the random numbers alone that it is drawn with. What reads them is in the modules `read_*`.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz import (
    grammar_archives,
    grammar_columns,
    grammar_folders,
    grammar_graphs,
    grammar_originals,
    grammar_pictures,
    grammar_texts,
    grammar_tokens,
    read_annotations,
    read_archives,
    read_columns,
    read_graphs,
    read_originals,
    read_pictures,
    read_texts,
    read_tokens,
)

Grammar = Callable[[random.Random], bytes]

GRAMMARS: dict[str, Grammar] = {
    "parquet": grammar_columns.parquet,
    "arrow": grammar_columns.arrow,
    "tokenizer": grammar_tokens.tokenizer,
    "archive": grammar_archives.archive,
    "original_model": grammar_originals.model,
    "original_import": grammar_originals.model,
    "original_loops": grammar_originals.loops,
    "packed_text": grammar_texts.packed,
    "feed_description": grammar_texts.feed_description,
    "picture": grammar_pictures.picture,
    "picture_folder": grammar_pictures.other_picture,
    "onnx_graph": grammar_graphs.graph,
    "hugging_face": grammar_folders.folder,
}
assert all((read_annotations, read_archives, read_columns, read_graphs, read_originals, read_pictures, read_texts, read_tokens))
