"""What reads a tokenizer.json."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.tokens import tokenizer_json
from pe_cli.data.tokens.text_chunks import Chunk
from pe_cli.kernels.text.characters import SLACK
from tests.fuzz.targets import refused, target

_TEXTS = (
    "",
    "a",
    "ab abc",
    "é 1-2",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "x" * 500,
    "\u2581a <pad>[CLS] \u0120",
    "日本 ABC\n\t.",
)


@target
def tokenizer(data: bytes, folder: Path) -> None:
    """A tokenizer.json: texts become ids, and these texts again."""
    path = folder / "tokenizer.json"
    path.write_bytes(data)
    texts = [text.encode() for text in _TEXTS]
    whole = b"".join(texts)
    buffer = np.frombuffer(whole + bytes(SLACK), np.uint8)
    chunk = Chunk(buffer, np.append(0, np.cumsum([len(text) for text in texts])).astype(np.int64))
    with refused(folder):
        state = tokenizer_json.read(path, lambda message, hint: PeError(message, hint=hint, code=ExitCode.DATA))
        for template in (True, False):
            made = tokenizer_json.FileTokens(state, template)
            ids, ends, unknown = made.worker()(chunk, 0, 1 << 20)
            assert len(ids) == ends[-1] <= made.bound(len(whole), len(texts))
            assert len(ends) == len(texts) + 1
            assert not len(ids) or 0 <= ids.min() <= ids.max() < made.size
            assert 0 <= unknown <= len(ids)
            for begin, end in itertools.pairwise(ends):
                some = ids[begin:end][:20].tolist()
                assert isinstance(made.decode(some), str)
                assert len(made.pieces(some)) == len(some)
        made.exported()
