"""Text generation with a language model: it gives probabilities of the next token, from which one is drawn."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import TensorType
from pe_cli.data.counter_random import stream_key, uniform
from pe_cli.data.feed import Conversion, check_feed
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.data.tokens.base import Tokenizer
from pe_cli.data.tokens.text_chunks import BadTextError
from pe_cli.data.tokens.tokenizer_kinds import open_tokens
from pe_cli.graph.lod_resolution import declared_levels
from pe_cli.ops.define.traits import Compares, Says, ToProbabilities
from pe_cli.program.ir import Program
from pe_cli.program.prune import prune
from pe_cli.session.job import Job

#: Column types whose state holds a tokenizer.
TYPES = ("blocks", "text")


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn.

    Args:
        temperature: what logits are divided by, no unit: 1 takes the model's probabilities, less prefers probable tokens, and 0 always
            takes the most probable one.
        top_k: number of the most probable tokens of which one is drawn; all when None.
        top_p: share of the probability that the tokens to be drawn from have together at least: the fewest of the most probable ones.
        seed: of the draws.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def probabilities(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability with which each token is drawn.

        Args:
            logits: [tokens], in nats; -inf for those that are never drawn, and finite for at least one.

        Returns:
            [tokens]; the sum is 1. Of equally probable tokens at the edge of `top_k` and `top_p`, those of smaller ids are kept.
        """
        order = np.argsort(-logits, kind="stable")
        if self.temperature == 0:
            order, shares = order[:1], np.ones(1)
        else:
            if self.top_k is not None:
                order = order[: self.top_k]
            # Relative to the largest logit, so that the exponential cannot overflow.
            with np.errstate(over="ignore"):  # of a tiny temperature: -inf, which is right
                shares = np.exp((logits[order] - logits[order[0]]) / self.temperature)
            shares /= shares.sum()
            if self.top_p is not None:
                # A sum of shares may fall short of top_p by a rounding, which must not let one more token in.
                kept = int(np.searchsorted(np.cumsum(shares), self.top_p * (1 - 1e-12))) + 1
                order, shares = order[:kept], shares[:kept] / shares[:kept].sum()
        found = np.zeros(len(logits))
        found[order] = shares
        return found

    def draw(self, logits: NDArray[np.float64], number: int) -> int:
        """Draw a token.

        Args:
            logits: see `probabilities`.
            number: of the draw; a draw depends on it and on the seed, and on no draw before.
        """
        ends = np.cumsum(self.probabilities(logits))
        at = uniform(stream_key("generate", self.seed), np.array([number], np.int64))[0] * ends[-1]
        # From the right: a token of probability 0 ends where the one before it ends, and is never found.
        return int(np.searchsorted(ends, at, side="right"))


class Generator:
    """Goes on with texts.

    Args:
        job: with values, and with what its columns have learned.

    Attributes:
        length: tokens that the model sees at once.
        tokenizer: of the column that the model reads.
        last_alone: whether the model answers for the last token of a block alone; shorter texts then stand behind padding.

    Raises:
        PeError: USAGE; the model is no language model, or its data have no tokens.
    """

    def __init__(self, job: Job) -> None:
        feed, column = _tokens_feed(job)
        self.tokenizer: Tokenizer = open_tokens(column.state["tokens"], template=column.type != "blocks")
        self._scores, self._logits = _scores(job, feed, self.tokenizer)
        self._executor = job.executor(prune(job.built.eval, [self._scores]))
        kind = job.built.eval.var(feed).type
        # [tokens], or [tokens, 1].
        self.length = max(kind.shape[1:], default=0)
        if self.length < 1:
            raise PeError(
                f"feed '{feed}' leaves the number of tokens open, and pe generate needs to know it",
                hint="declare its shape in the model: [128], or whatever data.source.blocks is",
            )
        source = TensorType((self.length,), "int64")
        how = job.data.feed(feed)
        self._feed = feed
        self._conversion: Conversion = check_feed(feed, how, {how.from_: source}, TensorType(kind.shape[1:], kind.dtype))
        size = self.tokenizer.size
        self._drawn = np.ones(size, bool)
        # Neither stands for a text, and neither is drawn.
        self._drawn[[i for i in (self.tokenizer.padding, self.tokenizer.unknown) if i is not None and i < size]] = False
        # Some models score what follows a whole block, others what follows each of its tokens: a run tells.
        self.last_alone = len(self._run([self.tokenizer.padding], behind=True)) == 1

    def encode(self, prompt: str) -> list[int]:
        """Return the tokens of a prompt.

        Raises:
            PeError: DATA; it has none, or a NUL byte.
        """
        try:
            tokens = self.tokenizer.encode(prompt)
        except BadTextError as error:
            raise PeError(f"the prompt: {error.message}", hint=error.hint, code=ExitCode.DATA) from None
        if not tokens or all(token == self.tokenizer.padding for token in tokens):
            raise PeError("the prompt has no token to go on from", hint="--prompt 'Once upon'", code=ExitCode.DATA)
        return tokens

    def unknown(self, tokens: Sequence[int]) -> int:
        """Return how many tokens training never saw."""
        return 0 if self.tokenizer.unknown is None else list(tokens).count(self.tokenizer.unknown)

    def generate(self, tokens: Sequence[int], count: int, sampling: Sampling) -> Iterator[str]:
        """Yield the text behind some tokens, piece by piece.

        Args:
            tokens: of the prompt, at least one; of more than `length`, the last ones are seen.
            count: number of tokens to add.
            sampling: how.

        Raises:
            PeError: DATA; the model says NaN.
        """
        # A token may end within a character, whose bytes then wait for the next token.
        seen, decoder = list(tokens)[-self.length :], codecs.getincrementaldecoder("utf-8")("replace")
        for number in range(count):
            token = sampling.draw(self.logits(seen), number)
            seen = [*seen, token][-self.length :]
            text = decoder.decode(self.tokenizer.pieces([token])[0])
            if text:
                yield text
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return how probable each token is behind some: float64 [tokenizer.size], in nats up to a constant; -inf for no text.

        Args:
            tokens: at least one, and `length` at most.

        Raises:
            PeError: DATA; the model's scores are NaN.
        """
        # A model that scores every position looks back only, so padding behind the tokens does not change their scores.
        found = self._run(tokens, behind=not self.last_alone)
        scores = found[0 if self.last_alone else len(tokens) - 1]
        scores = scores[: self.tokenizer.size].astype(np.float64)
        if np.isnan(scores[self._drawn]).any():
            raise PeError("the model's scores are NaN", hint="take an earlier checkpoint: --checkpoint FILE", code=ExitCode.DATA)
        if not self._logits:
            with np.errstate(divide="ignore"):
                scores = np.log(scores)
        return np.where(self._drawn, scores, -np.inf)

    def _run(self, tokens: Sequence[int], behind: bool) -> NDArray[Any]:
        """Return the scores of all positions, [positions, tokens]; padding stands behind the tokens, or before them."""
        block = np.full((1, self.length), self.tokenizer.padding, np.int64)
        start = 0 if behind else self.length - len(tokens)
        block[0, start : start + len(tokens)] = tokens
        fed = {self._feed: self._conversion.apply(block, np.zeros(1, np.int64), copy=True)}
        found = self._executor.run(fed, [self._scores]).merged(self._scores, "concat")
        return found.reshape(-1, found.shape[-1])


def _tokens_feed(job: Job) -> tuple[str, FittedColumn]:
    """Return the feed that takes the tokens, and the column that they are of."""
    prepared = job.data.prepared
    # Values that an import has written know no columns: their tokens are those that the config names.
    learns = not prepared.given and job.run.preparation.columns and "train" in prepared.sources.data
    fitted = prepared.fit().columns if learns else job.data.fitted.columns
    found: list[tuple[str, FittedColumn]] = []
    for feed, source in job.data.sources.items():
        column = fitted.get(source.names[0]) if len(source.names) == 1 else None
        if column is not None and column.type in TYPES and "tokens" in column.state:
            found.append((feed, column))
    levels = declared_levels(job.built.eval)
    read = _read_by_scores(job.built.eval)
    whole = [(feed, column) for feed, column in found if not levels.get(feed) and feed in read]
    if not whole:
        grouped = next((feed for feed, _ in found if levels.get(feed)), None)
        raise PeError(
            f"feed '{grouped}' takes texts of any length, and pe generate needs blocks of one length"
            if grouped
            else "the model reads no column of tokens, so it is no language model",
            at=job.run.at,
            hint="reader text with blocks: 128 gives the columns tokens and next; see configs/char_lm.yaml",
        )
    return whole[0]


def _candidates(program: Program) -> Iterator[tuple[str, bool]]:
    """Yield variables that may say how probable tokens are, the best first, and whether they are logits."""
    ops = program.top_ops
    for op in ops:
        loss = op.definition.get(Compares)
        if loss is not None and loss.several:
            yield op.inputs[loss.scores][0], loss.are is Says.LOGITS
    for op in reversed(ops):
        made = op.definition.get(ToProbabilities)
        if made is not None and made.several:
            yield op.inputs["X"][0], True


def _read_by_scores(program: Program) -> set[str]:
    """Return the feeds that some scores depend on."""
    found: set[str] = set()
    for variable, _ in _candidates(program):
        found |= _feeds_of(program, variable)
    return found


def _feeds_of(program: Program, variable: str) -> set[str]:
    return {v.name for v in prune(program, [variable]).list_vars() if v.is_data}


def _scores(job: Job, feed: str, tokenizer: Tokenizer) -> tuple[str, bool]:
    """Return the variable that says how probable every token is, and whether it is logits."""
    program = job.built.eval
    narrow = 0
    for variable, logits in _candidates(program):
        feeds = _feeds_of(program, variable)
        width = program.var(variable).shape[-1]
        if feed not in feeds:
            continue
        if width < tokenizer.size:
            narrow = max(narrow, width)
            continue
        if feeds == {feed}:
            return variable, logits
        raise PeError(
            f"'{variable}' is computed from {', '.join(sorted(feeds))}, and pe generate has the tokens alone",
            hint="a model that generates text reads one feed, the tokens before",
        )
    text = f"no output of the model has a number for each of the {tokenizer.size:,} tokens"
    raise PeError(
        f"{text}: the widest has {narrow:,}" if narrow else text,
        at=job.run.at,
        hint="its last layer is an fc of that size, with softmax_with_cross_entropy on it",
    )
