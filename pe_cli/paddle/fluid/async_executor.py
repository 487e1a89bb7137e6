"""AsyncExecutor: threads that take files from a list and train shared parameters without locks (Hogwild)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from pe_cli.core.threads import Thread
from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import feeding, run_step
from pe_cli.paddle.fluid.data_feed_desc import DataFeedDesc
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.multi_slot import batches
from pe_cli.paddle.fluid.places import CPUPlace, core_places
from pe_cli.paddle.fluid.prepared import Setting
from pe_cli.paddle.fluid.scope import Scope, global_scope
from pe_cli.program.ir import Program


class AsyncExecutor:
    """Trains on files with several threads of the CPU.

    Args:
        place: the CPU.

    Raises:
        FluidValueError: another place; a ValueError.
    """

    def __init__(self, place: Any = None, run_mode: str = "") -> None:
        if place is not None and not isinstance(place, CPUPlace):
            raise FluidValueError("AsyncExecutor runs on the CPU only", hint="AsyncExecutor(CPUPlace())")
        self._places = core_places([CPUPlace()])

    def run(
        self,
        program: Program | None,
        data_feed: DataFeedDesc,
        filelist: Any,
        thread_num: int,
        fetch: Any,
        mode: str | bool = "",
        debug: bool = False,
    ) -> None:
        """Run a program once for every batch of every file.

        Args:
            program: default: the default main program.
            data_feed: what the files hold.
            filelist: paths, or one.
            thread_num: threads; no more than files are used.
            fetch: variables or names, printed after every batch where debug is set; nothing is returned.
            mode: without effect; a bool is taken as debug.
            debug: print what is fetched.

        Raises:
            FluidTypeError: an argument of the wrong type; a TypeError.
            FluidValueError: no file, no thread, or data that does not fit; a ValueError.
        """
        debug = mode if isinstance(mode, bool) else debug
        program = default_main_program() if program is None else program
        if not isinstance(data_feed, DataFeedDesc):
            raise FluidTypeError(f"data_feed must be a DataFeedDesc, got {type(data_feed).__name__}")
        files = [filelist] if isinstance(filelist, str) else list(filelist or [])
        if not files:
            raise FluidValueError("filelist is empty")
        if thread_num < 1:
            raise FluidValueError(f"thread_num must be at least 1, got {thread_num}")
        names = run_step.names_of(run_step.wanted_of(program, fetch))
        job = _Job(program, data_feed, files, names if debug else [], global_scope(), self._places)
        job.run(min(thread_num, len(files)))


class _Job:
    """One call of `run`."""

    def __init__(
        self, program: Program, feed: DataFeedDesc, files: Sequence[Any], shown: list[str], scope: Scope, places: Any
    ) -> None:
        self.program, self.feed, self.shown, self.scope, self.places = program, feed, shown, scope, places
        # Taken from by all threads, so that a thread with short files takes more of them.
        self.files: SimpleQueue[Any] = SimpleQueue()
        for file in files:
            self.files.put(file)
        self.printing = threading.Lock()
        self.error: BaseException | None = None

    def run(self, count: int) -> None:
        """Run on so many threads.

        Raises:
            Exception: the first error of a thread, when all threads have ended.
        """
        threads = [Thread(target=self._work, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # The error of the first thread that fails; the others stop before their next batch, as they look at it.
        if self.error is not None:
            raise self.error

    def _work(self, worker: int) -> None:
        try:
            while self.error is None:
                try:
                    file = self.files.get_nowait()
                except Empty:
                    return
                for batch in batches([file], self.feed.slots, self.feed.batch_size):
                    self._step(worker, batch)
        except BaseException as error:  # noqa: BLE001 (raised in the caller's thread)
            self.error = self.error or error

    def _step(self, worker: int, batch: dict[str, Any]) -> None:
        # No lock around the step: threads read parameters while others write them, which is what Hogwild means (Niu et al. 2011).
        part = feeding.check(self.program, batch)
        # Workers count from 1: each has random numbers of its own, apart from those of a step of `Executor`, which is worker 0.
        setting = Setting(self.places, worker=worker + 1)
        with raised_as(EnforceNotMet):
            (values,) = run_step.run(self.program, self.scope, setting, [part], self.shown)
        if self.shown:
            with self.printing:
                for name in self.shown:
                    print(f"{name}: {np.array2string(values[name].array)}")  # noqa: T201 (asked for)
