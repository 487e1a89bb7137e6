"""A process in a group that trains one model by all-reduce, as its training loop sees it."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from pe_cli.collectives.process_supervisor import RUN, tell
from pe_cli.collectives.protocol import Communicator, Failure, PeerError, Summing, ends_all, speaks
from pe_cli.config.resolved import resolved_yaml
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.spec import RunSpec
from pe_cli.core.errors import ExitCode, PeError, system_error
from pe_cli.core.signals import SIGNALS
from pe_cli.core.types import Place, TensorType
from pe_cli.execute.batch import StepResult
from pe_cli.execute.plan.plan import Plan
from pe_cli.execute.plan.thread_layout import Layout
from pe_cli.io import strict_json
from pe_cli.kernels.math.tree_sum import fold
from pe_cli.session.device_choice import Resources, place_of_devices, resolve_places
from pe_cli.session.processes.agreement import agree, data_facts, machine_facts
from pe_cli.session.processes.process_group import ProcessGroup
from pe_cli.session.training.stop import Limits, SharedStop, StopRequest

Array = np.ndarray[Any, Any]
#: Seconds that a process leaves the one that speaks for its last words: launchers end all when one ends with an exit code other than 0.
LINGER = 5.0


class PeerGroup(ProcessGroup):
    """This process among others.

    Args:
        peers: all of them; each runs the same config.
        sums: the same, where they sum gradients among themselves; None where servers do.
    """

    shares = True

    def __init__(self, peers: Communicator, sums: Summing | None) -> None:
        self.peers: Communicator = peers
        self.sums = sums
        self.rank, self.size = peers.rank, peers.size
        self._stop = SharedStop()
        self._period_over: Callable[[], bool] = lambda: False
        self._save_due = False

    def resources(self, run: RunSpec, best: Callable[[int], Layout] | None = None) -> Resources:
        """Return the devices of this process: as many as every other has, each with one thread.

        With `auto` and no CPU_NUM the useful cores of a machine are divided by its processes.

        Raises:
            PeError: the processes have other configs, versions, processors or numbers of devices.
        """

        def apart(cores: int) -> Layout:
            used = best(cores).threads if best else cores
            return Layout(used, used)

        executor = run.executor
        if executor.place == "cuda":
            from pe_cli.devices.cuda_libraries.loaded_libraries import told

            libraries = {"set of CUDA libraries": told(executor.libraries)}  # all sum by NCCL, or none
            # Before anything is compiled or read: later, a difference would show as wrong sums or as a hang.
            agree(self.peers, {"config": resolved_yaml(run, standalone=True)} | machine_facts() | libraries)
            return self._cards(executor)
        own = resolve_places(executor.place, executor.devices, place_of_devices(executor), apart)
        places, text = own.places, own.text
        agree(self.peers, {"config": resolved_yaml(run, standalone=True)} | machine_facts())
        found = self.texts({"host": socket.gethostname(), "devices": len(places)})
        counts = [int(facts["devices"]) for facts in found]
        # The smallest machine decides: all processes must have as many devices.
        if executor.devices == "auto" and "CPU_NUM" not in text:  # cores, shared by the processes of a machine
            sharing = Counter(facts["host"] for facts in found)
            count = min(max(1, n // sharing[facts["host"]]) for n, facts in zip(counts, found, strict=True))
            places, text = places[:count], f"{count} cpu (cores of a machine, divided by its processes)"
        elif len(set(counts)) > 1:
            listed = ", ".join(map(str, counts))
            hint = "set executor.devices to a number, or CPU_NUM alike for all"
            raise PeError(f"the processes have {listed} devices, and must have as many each", hint=hint)
        return Resources(places, 0, f"{text} in each of {self.size} processes")

    def _cards(self, executor: ExecutorSection) -> Resources:
        """Return the cards of this process: those of a machine are divided among the processes that see the same."""
        from pe_cli.devices.cuda import cuda_count

        resolve_places("cuda", 1, place_of_devices(executor))  # says why there is none
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        found = self.texts({"host": socket.gethostname(), "cards": cuda_count()[0], "visible": visible})
        sharing = Counter((each["host"], each["visible"]) for each in found)
        most = min(int(each["cards"]) // sharing[each["host"], each["visible"]] for each in found)
        count = max(1, most) if executor.devices == "auto" else executor.devices
        if count > most:
            said = f"{count} CUDA devices wanted for each process, and a machine has {most} for each of its processes"
            raise PeError(said, at=place_of_devices(executor), hint="start fewer processes on a machine", code=ExitCode.DEVICE)
        mine = found[self.rank]
        # Cards are numbered for each machine and each set of visible ones; processes before this one have the first.
        first = count * sum((each["host"], each["visible"]) == (mine["host"], mine["visible"]) for each in found[: self.rank])
        places = tuple(Place("cuda", first + i) for i in range(count))
        return Resources(places, 0, f"{', '.join(map(str, places))} in process {self.rank} of {self.size}")

    def agree(self, model: Callable[[], str], data: Callable[[], Iterable[Path]]) -> None:
        """Compare what is trained on what; see `ProcessGroup`."""
        agree(self.peers, {"model": model()})
        agree(self.peers, data_facts(data()), ExitCode.DATA)

    # --- what all know ------------------------------------------------------------------------------------------------

    def stop(self, limits: Limits | None) -> StopRequest:
        """Return what ends training before its time, once all know."""
        self._stop = SharedStop(limits)
        return self._stop

    def begin_step(self, step: int) -> None:
        """Say which step begins, from 0."""
        self.peers.doing = f"at step {step + 1}"

    def stepped(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a training step gave on the devices of all processes; see `joined`."""
        return self.joined(mine, means)

    def joined(self, mine: StepResult, means: Sequence[str] = ()) -> StepResult:
        """Return what a step gave on all devices; with it goes who is asked to stop, and whether a checkpoint is due.

        Means are one small sum over all processes; other values are told to all, where there are any.
        """
        plan = mine.plan
        assert plan is not None, "a step of one plan"
        kinds = {name: plan.type_of(name, 0) for name in dict.fromkeys(means)}
        # One exchange for everything that a step tells: flags, and numbers that are added up.
        flags = np.array([self._stop.here, self.leads and self._period_over()], np.float64)
        total = self.peers.total(np.concatenate([flags, *(self._weighed(mine, plan, name, kind) for name, kind in kinds.items())]))
        # Agreed from the sum, so that all processes stop at the same step.
        self._stop.agreed |= bool(total[0])
        self._save_due = self._save_due or bool(total[1])
        found: dict[str, tuple[Array, int]] = {}
        begin = 2
        for name, kind in kinds.items():
            found[name] = total[begin : begin + kind.size].astype(kind.numpy).reshape(kind.shape), plan.counts[name].total
            begin += kind.size
        rest = [n for n in plan.request.fetches if n not in kinds]
        values, shares = self._told(mine, rest) if rest else ([], {})
        return StepResult(values, plan.samples.active, shares, plan, plan.samples.total, means=found)

    def _weighed(self, mine: StepResult, plan: Plan, name: str, kind: TensorType) -> Array:
        """Return what the devices of this process add to the mean of a variable, float64 [elements]."""
        counts, devices = plan.counts[name], len(plan.graph.places)
        # By the counts of all processes: an evaluation's last batch may be of other sizes here.
        whole = max(1, counts.total)
        parts = {
            d: counts.own[d] / whole * value[name].astype(np.float64).reshape(-1)
            for d, value in zip(plan.graph.active, mine.values, strict=True)
        }
        # -0.0 is what adding changes nothing by, to the last bit.
        total: Array = fold(devices, parts) if parts else np.full(kind.size, -0.0)
        return total

    def _told(self, mine: StepResult, names: Sequence[str]) -> tuple[list[Mapping[str, Array]], dict[str, list[int]]]:
        """Return the values of variables on every device of all processes, and how much each counts."""
        message: dict[str, Array] = {f"{d}/{n}": part[n] for d, part in enumerate(mine.values) for n in names}
        message |= {f"share/{n}": np.asarray(mine.shares[n], np.int64) for n in names if mine.values}
        values: list[Mapping[str, Array]] = []
        shares: dict[str, list[int]] = {n: [] for n in names}
        for arrays in self.arrays(message):
            for name in names:
                shares[name] += arrays.get(f"share/{name}", np.empty(0, np.int64)).tolist()
            count = sum(key.endswith(f"/{names[0]}") and not key.startswith("share/") for key in arrays)
            values += [{n: arrays[f"{d}/{n}"] for n in names} for d in range(count)]
        return values, shares

    def whole(self, mine: Mapping[str, Array]) -> dict[str, Array]:
        """Return samples of all processes, one after the other."""
        found = self.arrays(mine) if mine else []
        return {name: np.concatenate([arrays[name] for arrays in found]) for name in mine}

    def save_due(self) -> bool:
        """Whether the first process found a checkpoint due by the clock; asking takes it back."""
        found, self._save_due = self._save_due, False
        return found

    def arrays(self, mine: Mapping[str, Array]) -> list[Mapping[str, Array]]:
        """Return the arrays of every process."""
        # A copy in order: messages are bytes, and views may skip some.
        given = {name: np.array(a, order="C") for name, a in mine.items()}
        return [load(message) for message in self.peers.gather(save(given))]

    def texts(self, mine: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return a JSON object of every process."""
        told = self.peers.gather(strict_json.dumps(mine).encode())
        # Most say the same, and parsing ten thousand messages takes longer than their way.
        found = {message: strict_json.loads(message) for message in set(told)}
        return [facts if isinstance(facts := found[message], Mapping) else {} for message in told]

    # --- life and end -------------------------------------------------------------------------------------------------

    def again(self, folder: Path) -> str:
        """Return the command that goes on with a run."""
        return f"mpiexec -n {self.size} {super().again(folder)}"

    def trains_in(self, folder: Path) -> None:
        """Tell the overseer where the run is; see `ProcessGroup`."""
        tell(RUN, folder)

    def advise(self, hint: str) -> None:
        """Say what to do when a process is lost."""
        self.peers.advice = hint

    def linger(self) -> None:
        """Leave the first process time to end before this one does, where the launcher ends all when one has another exit code than 0."""
        self._leave(self.leads)

    def _leave(self, says: bool) -> None:
        """End so that the others can go on, or wait at the end until the process that reports the error has done so."""
        if not self.peers.take_leave() and not says:
            # A launcher would end the others before they have said why they failed.
            atexit.register(_linger, LINGER)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """End as the others do."""
        with self.told():
            yield
            self.peers.doing = "at the end"
            self.peers.close()

    @contextlib.contextmanager
    def told(self) -> Iterator[None]:
        """Tell the others of an error inside, and end as all do; see `ends_all`.

        Raises:
            SystemExit: another process says why all end.
        """
        try:
            yield
        except PeError as error:
            self._end(error)
            raise
        except BaseException as error:
            # An error of the system becomes one message here, as for a single process.
            said = system_error(error)
            if said is not None:
                self._end(said)
                raise said from error
            interrupted = isinstance(error, KeyboardInterrupt)
            text = "interrupted" if interrupted else f"{type(error).__name__}: {error}"
            self.peers.fail(Failure(text, ExitCode.INTERRUPTED if interrupted else ExitCode.BUG))
            self._leave(True)
            # The one that knows why speaks even if others lead.
            raise

    def _end(self, error: PeError) -> None:
        """Tell the others of an error, hear from them, and give it the exit code with which all end.

        Raises:
            SystemExit: see `told`.
        """
        mine = Failure.of(error)
        self.peers.fail(mine)
        told = error.told if isinstance(error, PeerError) else mine
        if told is None or told.code == ExitCode.PEER_LOST:  # somebody will never say anything
            if error.code == ExitCode.PEER_LOST:
                self._end_all(error.code, self.leads)
            else:
                self.linger()
            return
        # Each process knows what all have failed by, and all come to the same code and the same speaker.
        failures = {self.rank: mine, **self.peers.failures()}
        code, says = ends_all(failures, self.size), speaks(self.rank, failures)
        if len(failures) == self.size:
            self._leave(says)
        # It waits in a step that never comes: only MPI's abort ends it.
        else:  # one stands still
            self._end_all(code, says)
        if not says:
            raise SystemExit(int(code)) from None
        if code != error.code:  # what happened here alone
            error.message = f"process {self.rank} of {self.size}: {error.message}"
            error.hint = "; ".join(text for text in (error.hint, self.peers.advice) if text)
            error.code = code

    def _end_all(self, code: ExitCode, says: bool) -> None:
        """End all processes, and their launcher with an exit code, after this one's last words and those of the one that speaks."""
        # After everything else: abort ends the process without its own handlers.
        atexit.register(self.peers.abort, int(code))
        if not says:
            atexit.register(_linger, LINGER)


def _linger(seconds: float) -> None:
    """Wait for the launcher's end of all, which is no interruption and nothing to tell."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            # A second interruption ends the wait.
            signal.signal(number, lambda *_: os._exit(int(ExitCode.INTERRUPTED)))
    time.sleep(seconds)
