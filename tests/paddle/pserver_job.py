"""Trainers and parameter servers of a test: in threads of one process, each with a scope, or as processes of their own."""

from __future__ import annotations

import socket
import sys
import threading
import time
from dataclasses import dataclass, field, replace

import numpy as np

import pe_cli.paddle.fluid as fluid
from tests.paddle.pserver_models import batch, built


@dataclass(frozen=True)
class Job:
    """What is trained, by whom, and how."""

    model: str = "mlp"
    optimizer: str = "SGD"
    trainers: int = 2
    servers: int = 2
    sync: bool = True
    smallest: int = 64
    slices: bool = True
    steps: int = 5
    config: dict = field(default_factory=dict)
    endpoints: tuple = ()

    def placed(self):
        """Return the job with ports that are free now."""
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(self.servers)]
        endpoints = tuple(f"127.0.0.1:{s.getsockname()[1]}" for s in sockets)
        for s in sockets:
            s.close()
        return replace(self, endpoints=endpoints)

    def cut(self, trainer: int):
        """Return (transpiler, startup, loss)."""
        main, startup, loss = built(self.model, self.optimizer)
        config = fluid.DistributeTranspilerConfig()
        config.sync_mode, config.slice_var_up = self.sync, self.slices
        for name, value in self.config.items():
            setattr(config, name, value)
        transpiler = fluid.DistributeTranspiler(config)
        config.min_block_size = self.smallest
        transpiler.transpile(trainer, main, ",".join(self.endpoints), self.trainers, self.sync, startup)
        return transpiler, startup, loss


def serve(job: Job, index: int, first=None, cut=None, scope=None) -> None:
    """Run a server to its end.

    Args:
        first: name -> value, before trainers come.
    """
    transpiler, _, _ = cut or job.cut(0)
    scope = scope or fluid.Scope()
    main, startup = transpiler.get_pserver_programs(job.endpoints[index])
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup, scope=scope)
    for name, value in (first or {}).items():
        if scope.find_var(name) is not None and value.size:
            scope.var(name).get_tensor().set(value)
    executor.run(main, scope=scope)


def train(job: Job, trainer: int, cut=None, scope=None, steps=None):
    """Train; return (losses, parameters at first, parameters at the end)."""
    transpiler, startup, loss = cut or job.cut(trainer)
    scope = scope or fluid.Scope()
    executor = fluid.Executor(fluid.CPUPlace())
    main = transpiler.get_trainer_program()
    executor.run(startup, scope=scope)
    names = [p.name for p in main.all_parameters() if not (job.model == "emb_sparse" and p.name == "table")]
    first = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    losses = []
    for i in range(job.steps if steps is None else steps):
        (found,) = executor.run(main, batch(job.model, trainer, i), [loss], scope=scope)
        losses.append(float(np.ravel(found)[0]))
    last = {n: np.array(scope.find_var(n).get_tensor()) for n in names}
    executor.close()
    return losses, first, last


class Threads:
    """Runs functions side by side; `join` raises what one of them raised."""

    def __init__(self):
        self._threads, self.results, self.errors = [], {}, {}

    def start(self, name, function, *args, **given):
        """Run a function in a thread."""

        def run():
            try:
                self.results[name] = function(*args, **given)
            except BaseException as error:  # noqa: BLE001 (looked at by the test)
                self.errors[name] = error

        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def join(self, seconds: float = 60.0, check: bool = True):
        """Wait for all; return what they returned."""
        until = time.monotonic() + seconds
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until and not (check and self.errors):
            time.sleep(0.01)
        if check and self.errors:
            raise next(iter(self.errors.values()))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        assert not alive, f"{alive} have not ended after {seconds} s"
        return self.results


def side_by_side(job: Job, steps=None):
    """Run all servers and trainers of a job in threads; return trainer -> (losses, first, last)."""
    job, threads = job.placed(), Threads()
    cuts = [job.cut(0) for _ in range(job.servers)], [job.cut(i) for i in range(job.trainers)]
    for i in range(job.servers):
        threads.start(f"server {i}", serve, job, i, cut=cuts[0][i])
    for i in range(job.trainers):
        threads.start(i, train, job, i, cut=cuts[1][i], steps=steps[i] if steps else None)
    return {k: v for k, v in threads.join().items() if isinstance(k, int)}


def main(arguments) -> None:
    """`ROLE NUMBER GOLDEN ENDPOINTS MODEL OPTIMIZER SMALLEST`: a process; a trainer's losses and parameters go to `GOLDEN.NUMBER.npz`."""
    role, number, first, endpoints, model, optimizer, smallest, out = arguments
    index, ends = int(number), tuple(endpoints.split(","))
    job = Job(model, optimizer, servers=len(ends), smallest=int(smallest), endpoints=ends)
    if role == "server":
        golden = np.load(first)
        serve(job, index, {k.partition("/")[2]: golden[k] for k in golden.files if k.startswith(f"server{index}/")})
        return
    losses, _, last = train(job, index)
    np.savez(f"{out}/{index}.npz", loss=losses, **last)


if __name__ == "__main__":
    main(sys.argv[1:])
