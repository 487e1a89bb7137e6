"""Batches the rows of concurrent requests into one step."""

from __future__ import annotations

import json
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.threads import Thread
from pe_cli.session.evaluation.predictor import Predictor, Row
from pe_cli.session.serving.request_encoding import Encoded

if TYPE_CHECKING:
    from pe_cli.session.http.server import Server

#: Seconds of a batch, and bytes of its requests, up to which the server's thread answers it: to hand it over takes longer.
QUICK, FEW = 0.01, 4 << 20
#: Notes and columns that are listed beside an answer, and letters of each.
LISTED, LONGEST = 100, 500
#: Answers of a row become text by C code: they are plain values already.
_text = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


@dataclass
class Ask:
    """A request that waits.

    Args:
        rows: of it; empty where they are encoded.
        owner: whose it is.
        bytes: that it may take.
        encoded: its rows as the model takes them, where there are too many for one batch.
        at: rows that are answered.
        told: JSON of their answers.
        notes: what who sent it should know.
        error: why it is refused.
        given_up: whether nobody waits for it any more.
    """

    rows: Sequence[Row]
    owner: Any = None
    bytes: int = 0
    encoded: Encoded | None = None
    at: int = 0
    told: list[str] = field(default_factory=list)
    notes: Sequence[str] = ()
    error: BaseException | None = None
    given_up: bool = False


class Batches:
    """Answers requests in batches, those that came first, first, and a part at a time of those with many rows.

    A batch is what has come when the one before is done, or when nothing more comes at once. All but `_work` is for the server's thread.

    Args:
        predictor: answers.
        server: whose thread it is.
        batch: rows of a batch, at most.
        patience: seconds that a batch waits for more rows.
        done: is told which requests are answered or refused.
    """

    def __init__(
        self, predictor: Predictor, server: Server, batch: int, patience: float, done: Callable[[Sequence[Ask]], None]
    ) -> None:
        self._predictor, self._server, self._done = predictor, server, done
        # Where rows of a batch see each other, an answer would depend on who else asks at the moment: each request is a batch then.
        self._batch, self._patience = batch if predictor.separate else 1, patience
        self._small: deque[Ask] = deque()
        self._large: deque[Ask] = deque()
        self._seconds = 1.0  # of a batch, about
        self._planned = self._running = False
        self._given: queue.SimpleQueue[tuple[list[Ask], Ask | None] | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._work, name="answers", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Requests whose batch has not begun."""
        return len(self._small) + len(self._large)

    def fits(self, rows: int) -> bool:
        """Whether a number of rows fits into one batch."""
        return rows <= self._batch or not self._predictor.separate

    def submit(self, ask: Ask) -> None:
        """Queue a request."""
        (self._small if ask.encoded is None else self._large).append(ask)
        self._plan()

    def close(self) -> None:
        """End when the batch that is being answered is."""
        # Behind what was given, so that requests which wait are answered before the thread ends.
        self._given.put(None)
        self._thread.join()

    def _plan(self) -> None:
        """Begin a batch soon, if there is something to answer."""
        # One plan at a time: a batch that is running takes what waits when it ends.
        if self._planned or self._running or not (self._small or self._large):
            return
        self._planned = True
        if self._patience:
            self._server.loop.call_later(self._patience, self._begin)
        else:
            # Requests that have arrived by now still get into this batch, and a lone one does not wait.
            self._server.loop.call_soon(self._listen, 0)

    def _listen(self, before: int) -> None:
        """Begin a batch when no more requests have come since the last look."""
        # More may have arrived while the loop looked around: it goes on as long as each look finds some.
        if before < len(self._small) < self._batch:
            self._server.loop.call_soon(self._listen, len(self._small))
        else:
            self._begin()

    def _begin(self) -> None:
        self._planned = False
        small = self._taken()
        # What takes long goes to the other thread, so that this one goes on listening.
        if self._large or self._seconds > QUICK or not self._predictor.separate or sum(ask.bytes for ask in small) > FEW:
            self._running = True
            self._given.put((small, self._large.popleft() if self._large else None))
            return
        begin = time.perf_counter()
        self._answer(small)
        self._finished(small, None, time.perf_counter() - begin)

    def _taken(self) -> list[Ask]:
        """Return the small requests of the next batch."""
        taken: list[Ask] = []
        count = 0
        # The first request of a batch is taken whatever its size, or one of many rows would wait for ever.
        while self._small and (not taken or count + len(self._small[0].rows) <= self._batch):
            taken.append(self._small.popleft())
            count += len(taken[-1].rows)
        return taken

    def _finished(self, small: Sequence[Ask], large: Ask | None, seconds: float) -> None:
        self._running = False
        # One slow batch, such as the first of its size, which is planned, changes the guess little; quick ones bring it down soon.
        self._seconds += (seconds - self._seconds) / 4 if seconds > self._seconds else (seconds - self._seconds) / 2
        # A large request is answered in parts, and other requests get a turn between two of them.
        if large is not None and large.error is None and not large.given_up and large.at < len(large.encoded or ()):
            self._large.append(large)  # behind those of others
            large = None
        self._done([*small, *([] if large is None else [large])])
        self._plan()

    def _work(self) -> None:
        while (given := self._given.get()) is not None:
            small, large = given
            begin = time.perf_counter()
            self._answer(small)
            seconds = time.perf_counter() - begin
            if large is not None:
                self._answer_part(large)
            # The loop's thread alone touches the queues: the other one hands its result back.
            self._server.call(self._finished, small, large, seconds)

    def _answer(self, asks: Sequence[Ask]) -> None:
        """Answer requests together, but for those that are wrong."""
        asks = [ask for ask in asks if not ask.given_up]
        if not asks:
            return
        failed: list[str] = []
        try:
            encoded = self._predictor.encode([row for ask in asks for row in ask.rows], "the request", failed)
            answers = list(map(_text, self._predictor.answers(encoded, 0, len(encoded))))
            if encoded.notes:
                for ask in asks:  # each hears of its own
                    ask.notes = self._predictor.notes(ask.rows, encoded.notes)
        # Whatever it is, somebody waits for an answer, and the thread must go on for others.
        except BaseException as error:  # noqa: BLE001 - it is told to who asked
            if len(asks) == 1:
                asks[0].error = error
            else:
                self._answer_others(asks, failed)
            return
        start = 0
        for ask in asks:
            ask.told = answers[start : start + len(ask.rows)] if len(asks) > 1 else answers
            start += len(ask.rows)

    def _answer_others(self, asks: Sequence[Ask], failed: Sequence[str]) -> None:
        """Answer requests of which some are wrong: those whose cells the columns take which have failed, else the halves by themselves."""
        for ask in asks:
            try:
                # The columns that failed are read again for each request alone: then it is known whose they are.
                self._predictor.notes(ask.rows, failed)
            except PeError as error:
                ask.error = error
        right = [ask for ask in asks if ask.error is None]
        if len(right) < len(asks):
            self._answer(right)
            return
        # Nothing says which request is the wrong one: halves find it after few tries, and the right ones still share batches.
        middle = len(asks) // 2
        self._answer(asks[:middle])
        self._answer(asks[middle:])

    def _answer_part(self, ask: Ask) -> None:
        """Answer the next rows of a request with many; the others come behind those of other requests."""
        assert ask.encoded is not None
        end = min(ask.at + self._batch, len(ask.encoded))
        try:
            ask.told += map(_text, self._predictor.answers(ask.encoded, ask.at, end))
        except BaseException as error:  # noqa: BLE001 - it is told to who asked
            ask.error = error
        ask.at = end


def said(error: PeError) -> str:
    """Return the message of an error, without places in files that the client does not have."""
    return "; ".join(f"{inner.message}{f' ({inner.hint})' if inner.hint else ''}" for inner in error.each[:20])[:2000]


def as_json(ask: Ask, beside: Mapping[str, Sequence[str]]) -> bytes:
    """Return the answer of a request, with lists of texts beside its rows, as far as people read them."""
    more = "".join(f", {_text(name)}: {_text([text[:LONGEST] for text in texts[:LISTED]])}" for name, texts in beside.items() if texts)
    return f'{{"rows": [{", ".join(ask.told)}]{more}}}'.encode("utf-8", "replace")
