"""DataFeeder: lists of samples become feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid.framework import default_main_program
from pe_cli.paddle.fluid.lod_tensor import LoDTensor
from pe_cli.paddle.fluid.places import CUDAPlace, cpu_num, cuda_places
from pe_cli.paddle.fluid.reader import to_feed
from pe_cli.paddle.fluid.type_checks import check_dtype, check_type, check_variable_and_dtype, convert_dtype
from pe_cli.program.ir import Program, Variable


class DataFeeder:
    """Turns samples into feeds.

    Args:
        feed_list: variables or names, in the order of a sample's entries.
        place: where the feeds are used.
        program: of the names; default: the default main program.

    Raises:
        FluidValueError: there is no such variable; a ValueError.
    """

    def __init__(self, feed_list: Sequence[Any], place: Any, program: Program | None = None) -> None:
        block = (program or default_main_program()).global_block()
        self.place = place
        self.feed_vars: list[Variable] = []
        for given in feed_list:
            name = given if isinstance(given, str) else given.name
            found = given if isinstance(given, Variable) else block.vars.get(name)
            if found is None or (program is not None and name not in block.vars):
                raise FluidValueError(f"the program has no variable '{name}'", hint=did_you_mean(name, block.vars))
            self.feed_vars.append(found)

    def feed(self, iterable: Iterable[Any]) -> dict[str, Any]:
        """Return name -> batch, a LoDTensor, for the samples of one batch."""
        made = to_feed(self.feed_vars, iterable)
        return {name: value if isinstance(value, LoDTensor) else LoDTensor(value) for name, value in made.items()}

    def feed_parallel(self, iterable: Iterable[Any], num_places: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield a feed for every mini-batch, one per device.

        Raises:
            FluidValueError: not as many mini-batches as devices; a ValueError.
        """
        batches = list(iterable)
        devices = self._devices(num_places)
        # Devices run one step together: each needs a mini-batch.
        if len(batches) != devices:
            raise FluidValueError(f"there are {len(batches)} mini-batches for {devices} devices", hint="one for each")
        return iter([self.feed(b) for b in batches])

    def _devices(self, num_places: int | None) -> int:
        if num_places is not None:
            return int(num_places)
        return len(cuda_places()) if isinstance(self.place, CUDAPlace) else cpu_num()

    def decorate_reader(
        self,
        reader: Callable[[], Iterable[Any]],
        multi_devices: bool,
        num_places: int | None = None,
        drop_last: bool = True,
    ) -> Callable[[], Iterator[Any]]:
        """Return a reader of feeds: one per batch, or lists with one for each device.

        Raises:
            FluidValueError: while reading: drop_last is False and the last batches are fewer than devices; a ValueError.
        """

        def made() -> Iterator[Any]:
            if not multi_devices:
                for samples in reader():
                    yield self.feed(samples)
                return
            devices = self._devices(num_places)
            waiting: list[Any] = []
            for samples in reader():
                waiting.append(samples)
                if len(waiting) == devices:
                    yield list(self.feed_parallel(waiting, devices))
                    waiting = []
            if waiting and not drop_last:
                hint = "set drop_last=True, or give the reader as many batches as devices"
                raise FluidValueError(f"{len(waiting)} mini-batches are left for {devices} devices", hint=hint)

        return made


__all__ = ["DataFeeder", "check_dtype", "check_type", "check_variable_and_dtype", "convert_dtype"]
