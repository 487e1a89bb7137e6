"""A starter for a text without a target: a model that tells the next character, and that `pe generate` writes with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.yaml_inline import quoted
from pe_cli.data.column import Context
from pe_cli.data.columns.blocks import TEXT, BlocksOptions
from pe_cli.data.columns.text import fit_tokens
from pe_cli.data.row_split import split_rows
from pe_cli.session.starters.files import Settings, Starter, aligned, data_section, head, text, training
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.training_plan import plan

#: Characters of a block, and of a text at least.
LENGTH, FEWEST = 128, 2_000
#: Different characters that are kept; rarer ones are unknown.
MOST = 2_000


def starter(settings: Settings) -> Starter:
    """Return a starter for a language model of characters.

    Raises:
        PeError: DATA; the text cannot be read, or is too short. USAGE; a target is named.
    """
    if settings.target is not None:
        raise PeError(
            f"{settings.source} is a text, which has no columns, and --target names one",
            hint="leave --target out for a model that writes such texts; a table has an end such as .csv",
        )
    where = "folder" if settings.source.is_dir() else "files"
    whole = settings.open({"reader": "text", where: settings.path, "blocks": LENGTH})
    strings = whole.cells(TEXT).strings()
    size = int(strings.offsets[-1] - strings.offsets[0])
    if size < FEWEST:
        raise PeError(
            f"{settings.source} has {size:,} bytes of text, and a model needs {FEWEST:,} at least",
            hint="more text",
            code=ExitCode.DATA,
        )
    # Of a short text, blocks that overlap make twice as many samples.
    stride = LENGTH // 2 if size < 1_000_000 else LENGTH
    source: dict[str, Any] = {
        "reader": "text",
        where: settings.path,
        "blocks": LENGTH,
        **({"stride": stride} if stride < LENGTH else {}),
    }
    split = {"eval": 0.1 if size < 10_000_000 else 0.02}
    rows = split_rows(whole, np.arange(len(whole), dtype=np.int64), SplitSection.model_validate(split))["train"]
    context = Context(whole, "tokens", False, None, None, settings.base)
    state = fit_tokens(BlocksOptions.model_validate({"size": MOST}), context, [TEXT], rows)
    tokens = len(state["characters"]) + 2
    blocks = max(1, int(size * (1 - split["eval"])) // stride)
    made = plan(blocks, 2_000)
    made = replace(made, batch_size=min(64, made.batch_size), epochs=min(40, made.epochs), learning_rate=0.004)
    hidden = 128 if size < 1_000_000 else 256
    columns = [
        (
            "tokens:",
            f"{{type: blocks, tokens: characters, size: {tokens}}}",
            f"{tokens - 2:,} characters; tokens: bpe learns frequent pairs of them",
        ),
    ]
    lines = [
        *head(f"Learns to write texts like {said(settings.source.name)}, character by character: pe generate RUN --prompt TEXT"),
        *data_section(
            {"source": source},
            split,
            [f"{size:,} bytes as blocks of {LENGTH} characters" + (", each half over the one before" if stride < LENGTH else "") + ".",
             "The evaluation is the end of the text."],
            columns,
        ),
        "",
        "# A block's characters, and the character behind each of them, which is to be predicted.",
        "feeds: {tokens: tokens, next: next}",
        *training(
            made,
            blocks,
            best="eval/loss",
            mode="min",
            rest=[
                "    type: Adam",
                f"    learning_rate: {made.learning_rate!r}",
                "    grad_clip: {type: GradientClipByGlobalNorm, clip_norm: 1.0}  # recurrent layers have rare, very large gradients",
            ],
        ),
    ]  # fmt: skip
    note = f"{size:,} bytes of text with {tokens - 2:,} characters; no target: a model that writes such texts"
    return Starter(text(lines), _model(settings, tokens, hidden), (note,))


def _model(settings: Settings, tokens: int, hidden: int) -> str:
    layers = [
        ("ids:", "{type: unsqueeze, input: tokens, axes: [2]}", ""),
        (
            "rows:",
            f"{{type: embedding, size: [{tokens}, 32]}}",
            f"{tokens - 2} characters of the training text, padding and unknown",
        ),
        ("lstm:", f"{{type: lstm, hidden_size: {hidden}}}", "sees what stands before"),
        (
            "logits:",
            f"{{type: fc, input: lstm.0, size: {tokens}, num_flatten_dims: 2}}",
            "a number for every character",
        ),
        ("wanted:", "{type: unsqueeze, input: next, axes: [2]}", ""),
        ("xent:", "{type: softmax_with_cross_entropy, logits: logits, label: wanted}", ""),
        ("loss:", "{type: mean, x: xent}", "nats per character; exp(loss) is the perplexity"),
    ]
    lines = [
        f"# What is computed for {said(settings.config.name)}. `pe ops` lists every type of layer, `pe ops lstm` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        f"# Inputs: blocks of {LENGTH} characters, as the reader cuts them.",
        "feeds:",
        f"  tokens: {{shape: [{LENGTH}], dtype: int64}}",
        f"  next:   {{shape: [{LENGTH}], dtype: int64}}",
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured; single numbers become metrics.",
        "fetches: [loss]",
    ]
    return text(lines)
