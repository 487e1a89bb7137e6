"""Executor: runs the ops of a program in their order, on one device."""

from __future__ import annotations

from typing import Any

import numpy as np

from pe_cli.paddle.errors import EnforceNotMet, FluidTypeError, FluidValueError, raised_as
from pe_cli.paddle.fluid import feeding, parameter_server, run_step
from pe_cli.paddle.fluid.compiler import CompiledProgram
from pe_cli.paddle.fluid.feed_shapes import fitted
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.fluid.places import core_places, default_place
from pe_cli.paddle.fluid.prepared import Setting
from pe_cli.paddle.fluid.reader import next_feed
from pe_cli.paddle.fluid.scope import Scope, global_scope, scope_guard
from pe_cli.program.ir import Program


class Executor:
    """Runs programs on one device.

    Args:
        place: of that device; default: what `set_device` chose, else a GPU where there is one, else the CPU.
    """

    def __init__(self, place: Any = None) -> None:
        if place is None:
            place = default_place()
        self.place = place
        self._places = core_places([place])
        self._closed = False

    def run(  # noqa: PLR0913, PLR0917 (fluid's arguments)
        self,
        program: Any = None,
        feed: Any = None,
        fetch_list: Any = None,
        feed_var_name: str = "feed",
        fetch_var_name: str = "fetch",
        scope: Scope | None = None,
        return_numpy: bool = True,
        use_program_cache: bool = False,
        return_merged: bool = True,
        use_prune: bool = False,
    ) -> list[Any]:
        """Run every op of a program once; nothing is left out for the sake of the fetch list.

        Args:
            program: default: the default main program; or a `CompiledProgram`.
            feed: name -> array, list of numbers or LoDTensor.
            fetch_list: variables or names.
            feed_var_name: without effect: programs have no feed op here.
            fetch_var_name: without effect.
            scope: default: the global scope.
            return_numpy: arrays; otherwise LoDTensors.
            use_program_cache: without effect: prepared programs are always kept, and made again when they change.
            return_merged: join the devices' values of a data-parallel program; otherwise a list for each.
            use_prune: without effect.

        Returns:
            One value for every entry of fetch_list.

        Raises:
            FluidValueError: a feed or fetch that does not fit; a ValueError.
            FluidTypeError: a feed of the wrong element type, or no program; a TypeError.
            EnforceNotMet: the executor is closed, a variable has no value, or an op fails; a RuntimeError.
        """
        if self._closed:
            raise EnforceNotMet("this Executor is closed", hint="make another one")
        program = default_main_program() if program is None else program
        scope = scope or global_scope()
        # A trainer with parameter servers runs on one device, so the compiled program is taken apart again.
        if isinstance(program, CompiledProgram) and parameter_server.is_remote(program._program):
            program = program.with_servers(self.place)
        if isinstance(program, CompiledProgram):
            return program.run_on(self.place, scope, feed, fetch_list, return_numpy, return_merged)
        if not isinstance(program, Program):
            raise FluidTypeError(f"Executor.run takes a Program or a CompiledProgram, got {type(program).__name__}")
        # A list with one feed is what a loader of one device yields.
        if isinstance(feed, (list, tuple)) and len(feed) == 1:
            feed = feed[0]
        # Readers that were started for the program feed it where the caller does not.
        if feed is None or (isinstance(feed, dict) and not feed):
            feed = next_feed(program)
        if not isinstance(feed, dict):
            raise FluidTypeError(f"feed must be a dict of name -> value, got {type(feed).__name__}")
        if parameter_server.is_remote(program):
            names = run_step.names_of(run_step.wanted_of(program, fetch_list))
            with raised_as(EnforceNotMet):
                found = parameter_server.run(program, scope, Setting(self._places), feed, names, self)
            return [run_step.as_fetched(n, found[n], return_numpy) for n in names if n in found]
        # Feeds of a loaded model may have other sizes than those declared in it: types are inferred anew for them.
        program = fitted(program, feed)
        part = feeding.check(program, feed)
        wanted = run_step.wanted_of(program, fetch_list)
        with raised_as(EnforceNotMet):
            (values,) = run_step.run(program, scope, Setting(self._places), [part], run_step.names_of(wanted))
        return run_step.in_order(wanted, lambda n: run_step.as_fetched(n, values[n], return_numpy))

    def close(self) -> None:
        """Close the executor: it cannot run any more. Parameter servers that it has talked to are left, and end after the last trainer.

        Raises:
            EnforceNotMet: a server is lost; a RuntimeError.
        """
        self._closed = True
        with raised_as(EnforceNotMet):
            parameter_server.close(self)

    def infer_from_dataset(self, program: Any = None, dataset: Any = None, scope: Any = None, **more: Any) -> None:
        """Run a program over a dataset without returning anything; arguments of `train_from_dataset`."""
        self.train_from_dataset(program, dataset, scope, **more)

    def train_from_dataset(  # noqa: PLR0913, PLR0917 (fluid's arguments)
        self,
        program: Any = None,
        dataset: Any = None,
        scope: Scope | None = None,
        thread: int = 0,
        debug: bool = False,
        fetch_list: Any = None,
        fetch_info: Any = None,
        print_period: int = 100,
        fetch_handler: Any = None,
    ) -> None:
        """Run a program once for every batch of a dataset, printing what is fetched every print_period batches.

        Raises:
            FluidValueError: there is no dataset.
        """
        if dataset is None:
            raise FluidValueError("dataset is needed")
        program = default_main_program() if program is None else program
        labels = fetch_info or [getattr(v, "name", v) for v in fetch_list or []]
        for step, feed in enumerate(dataset.batches()):
            values = self.run(program, feed, fetch_list, scope=scope)
            if labels and step % print_period == 0:
                print(", ".join(f"{k}: {v}" for k, v in zip(labels, values, strict=True)))  # noqa: T201


def as_numpy(tensor: Any) -> Any:
    """Return a tensor, or a list of them, as arrays.

    Raises:
        FluidValueError: sequences of a LoDTensor, which no array can show; a ValueError.
    """
    if isinstance(tensor, (list, tuple)):
        return [as_numpy(t) for t in tensor]
    if isinstance(tensor, LoDTensor) and tensor.lod():
        raise FluidValueError("a LoDTensor with sequences is no plain array", hint="use return_numpy=False")
    return np.array(tensor)


__all__ = ["Executor", "as_numpy", "global_scope", "scope_guard"]
