"""A recurrent cell whose step is written once: what it begins with, and its states in a decoder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from pe_cli.paddle.errors import FluidValueError
from pe_cli.paddle.fluid import layers
from pe_cli.paddle.fluid.naming import use


class InitState:
    """What a state of a cell begins with.

    Args:
        init: the state itself, [sequences, width].
        shape: of a constant that stands for it; its first size is that of init_boot.
        value: of that constant.
        init_boot: any variable with as many rows.
        need_reorder: the rows follow the order of sequences as they are fed, and not that of their lengths: see DynamicRNN.memory.
        dtype: of the constant.

    Raises:
        FluidValueError: neither init nor init_boot; a ValueError.
    """

    def __init__(
        self, init: Any = None, shape: Any = None, value: float = 0.0, init_boot: Any = None, need_reorder: bool = False,
        dtype: Any = "float32",
    ) -> None:  # fmt: skip
        if init is None and init_boot is None:
            raise FluidValueError("InitState needs init or init_boot", hint="init_boot is any variable with a row for each sequence")
        made = layers.fill_constant_batch_size_like(input=init_boot, value=value, shape=shape, dtype=dtype) if init is None else init
        self.value: Any = made
        self.need_reorder = need_reorder


class _Decoder(Protocol):
    """What a cell asks of the decoder that it is in."""

    def begin_state(self, name: str, init: InitState) -> Any:
        """Return a state of the last step."""

    def keep_state(self, name: str, value: Any) -> None:
        """Hand a state on to the next step."""


class StateCell:
    """The states of a recurrent cell, its inputs, and the function that makes one step of them.

    Args:
        inputs: name -> variable, or None where every step sets it.
        states: name -> InitState.
        out_state: name of the state that is the cell's output.
        name: without effect.

    Raises:
        FluidValueError: a state that is no InitState, or an out_state that is none of them; a ValueError.
    """

    def __init__(self, inputs: Mapping[str, Any], states: Mapping[str, InitState], out_state: str, name: str | None = None) -> None:
        wrong = [state for state, init in states.items() if not isinstance(init, InitState)]
        if wrong or out_state not in states:
            raise FluidValueError(f"StateCell: out_state is '{out_state}', states are {', '.join(states)}", hint="each an InitState")
        use({"state_cell": int(name is None)})
        self.inputs, self.states, self._out = dict(inputs), dict(states), out_state
        self._decoder: _Decoder | None = None
        self._now: dict[str, Any] = {}
        self._update: Callable[[StateCell], Any] | None = None

    def enter(self, decoder: _Decoder) -> None:
        """Become the cell of a decoder.

        Raises:
            FluidValueError: it is another's; a ValueError.
        """
        if self._decoder is not None:
            raise FluidValueError("StateCell: it is in a decoder already", hint="a cell serves one decoder after the other")
        self._decoder, self._now = decoder, {}

    def leave(self) -> None:
        """Be free for another decoder."""
        self._decoder = None

    def get_state(self, state_name: str) -> Any:
        """Return a state as it is now.

        Raises:
            FluidValueError: there is none of that name, or the cell is in no decoder; a ValueError.
        """
        # On first use: a decoder can begin a state in its block only, which `enter` may come before.
        if self._decoder is not None and not self._now:
            self._now = {name: self._decoder.begin_state(name, init) for name, init in self.states.items()}
        if state_name not in self._now:
            raise FluidValueError(f"StateCell: there is no state '{state_name}' now", hint=f"in a decoder: {', '.join(self.states)}")
        return self._now[state_name]

    def set_state(self, state_name: str, state_value: Any) -> None:
        """Give a state another value."""
        self._now[state_name] = state_value

    def get_input(self, input_name: str) -> Any:
        """Return an input of this step.

        Raises:
            FluidValueError: there is none of that name, or nothing set it; a ValueError.
        """
        found = self.inputs.get(input_name)
        if found is None:
            raise FluidValueError(f"StateCell: there is no input '{input_name}' now", hint="compute_state sets inputs")
        return found

    def state_updater(self, updater: Callable[[StateCell], Any]) -> Callable[[StateCell], Any]:
        """Register the function that makes one step of the states: a decorator."""
        self._update = updater
        return updater

    def compute_state(self, inputs: Mapping[str, Any]) -> None:
        """Set inputs, and make one step.

        Raises:
            FluidValueError: an input that the cell does not have, or no function for the step; a ValueError.
        """
        unknown = [name for name in inputs if name not in self.inputs]
        if unknown or self._update is None:
            wrong = f"there is no input '{unknown[0]}'" if unknown else "nothing says what a step is"
            raise FluidValueError(f"StateCell: {wrong}", hint=f"inputs are {', '.join(self.inputs)}; @cell.state_updater")
        # Begins the states where nothing has asked for one yet, and fails outside of a decoder.
        self.get_state(self._out)
        self.inputs.update(inputs)
        self._update(self)

    def update_states(self) -> None:
        """Hand all states on to the next step.

        Raises:
            FluidValueError: the cell is in no decoder; a ValueError.
        """
        self.get_state(self._out)
        if self._decoder is None:
            raise FluidValueError("StateCell: update_states outside of a decoder", hint="call it in the decoder's block")
        for name, value in self._now.items():
            self._decoder.keep_state(name, value)

    def out_state(self) -> Any:
        """Return the state that is the cell's output."""
        return self.get_state(self._out)


__all__ = ["InitState", "StateCell"]
