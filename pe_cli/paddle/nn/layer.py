"""Layer: an object that makes its parameters once and appends its ops at every call."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.paddle.errors import FluidValueError, raised_as
from pe_cli.paddle.fluid.framework import as_dtype, as_sizes, default_main_program, ensure_defaults
from pe_cli.program.ir import Parameter
from pe_cli.program.param_attr import ParamAttr

#: Facts of a parameter that its declaration in another program repeats.
_FACTS = ("trainable", "learning_rate", "regularizer", "gradient_clip", "do_model_average")


class Layer:
    """The base of layers in static mode.

    The parameters are made when the object is: in the default main program of that time, initialised by its startup
    program. Every call appends ops that share them. A call in another program declares them there by the same names.

    Attributes:
        training: whether calls from now on append ops for training; `train` and `eval` set it.
    """

    training: bool

    def __init__(self, name_scope: str | None = None, dtype: Any = "float32") -> None:
        ensure_defaults()
        facts: dict[str, Any] = {
            "_parameters": {}, "_sub_layers": {}, "_pre_hooks": {}, "_post_hooks": {}, "training": True, "_dtype": as_dtype(dtype),
        }  # fmt: skip
        # Past `__setattr__`, which looks into these dicts.
        self.__dict__.update(facts)
        self._helper = LayerHelper(name_scope or _scope_of(type(self).__name__))

    # --- calls -------------------------------------------------------------------------------------------------------

    def forward(self, *inputs: Any, **given: Any) -> Any:
        """Append the layer's ops; subclasses say which.

        Raises:
            NotImplementedError: the subclass does not.
        """
        raise NotImplementedError(f"{type(self).__name__} has no forward: define forward(self, x), which appends the layer's ops")

    @raised_as(FluidValueError)
    def __call__(self, *inputs: Any, **given: Any) -> Any:
        for before in self._pre_hooks.values():
            changed = before(self, inputs)
            if changed is not None:
                inputs = changed if isinstance(changed, tuple) else (changed,)
        out = self.forward(*inputs, **given)
        for after in self._post_hooks.values():
            changed = after(self, inputs, out)
            out = out if changed is None else changed
        return out

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> HookRemover:
        """Call hook(layer, inputs) before every forward; what it returns, unless None, replaces the inputs."""
        return HookRemover(self._pre_hooks, hook)

    def register_forward_post_hook(self, hook: Callable[..., Any]) -> HookRemover:
        """Call hook(layer, inputs, output) after every forward; what it returns, unless None, replaces the output."""
        return HookRemover(self._post_hooks, hook)

    def train(self) -> None:
        """Append ops for training at later calls; ops that are in a program already stay as they are."""
        for layer in self.sublayers(include_self=True):
            layer.training = True

    def eval(self) -> None:
        """Append ops for tests at later calls; for a program that is built already there is `clone(for_test=True)`."""
        for layer in self.sublayers(include_self=True):
            layer.training = False

    # --- what it is made of ------------------------------------------------------------------------------------------

    @raised_as(FluidValueError)
    def create_parameter(
        self,
        shape: Any,
        attr: Any = None,
        dtype: Any = None,
        is_bias: bool = False,
        default_initializer: Any = None,
    ) -> Any:
        """Make a parameter, initialised in the startup program; `attr=False` makes none and returns None."""
        if attr is False:
            return None
        kind = self._dtype if dtype is None else as_dtype(dtype)
        return self._helper.parameter(attr, as_sizes(shape), kind, is_bias=is_bias, default=default_initializer)

    def add_parameter(self, name: str, parameter: Any) -> Any:
        """Register a parameter, or None, under a name.

        Raises:
            TypeError: it is no parameter.
        """
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(f"add_parameter needs a parameter, got {type(parameter).__name__}")
        self._forget(name)
        self._parameters[name] = parameter
        return parameter

    def add_sublayer(self, name: str, sublayer: Any) -> Any:
        """Register a layer under a name.

        Raises:
            TypeError: it is no layer.
        """
        if sublayer is not None and not isinstance(sublayer, Layer):
            raise TypeError(f"add_sublayer needs a layer, got {type(sublayer).__name__}")
        self._forget(name)
        self._sub_layers[name] = sublayer
        return sublayer

    def named_sublayers(
        self, prefix: str = "", include_self: bool = False, layers_set: set[Any] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """Return all layers below with their paths, each once."""
        seen = set() if layers_set is None else layers_set
        if self in seen:
            return
        seen.add(self)
        if include_self:
            yield prefix, self
        for name, layer in self.named_children():
            yield from layer.named_sublayers(f"{prefix}.{name}" if prefix else name, True, seen)

    def sublayers(self, include_self: bool = False) -> list[Any]:
        """Return all layers below, each once."""
        return [layer for _, layer in self.named_sublayers(include_self=include_self)]

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """Return the layers right below with their names."""
        yield from ((name, layer) for name, layer in self._sub_layers.items() if layer is not None)

    def children(self) -> Iterator[Any]:
        """Return the layers right below."""
        yield from (layer for _, layer in self.named_children())

    def named_parameters(self, prefix: str = "", include_sublayers: bool = True) -> Iterator[tuple[str, Any]]:
        """Return the parameters with their paths, each once."""
        layers = self.named_sublayers(prefix, include_self=True) if include_sublayers else iter([(prefix, self)])
        seen = set()
        for path, layer in layers:
            for name, parameter in layer._parameters.items():
                if parameter is not None and parameter.name not in seen:
                    seen.add(parameter.name)
                    yield f"{path}.{name}" if path else name, _declared(parameter)

    def state_dict(self, destination: Any = None, include_sublayers: bool = True, structured_name_prefix: str = "") -> dict[str, Any]:
        """Return path -> parameter, by all paths that lead to it; values are in the scope.

        Args:
            destination: a mapping that they are put into; default: a new one.
            include_sublayers: also those of the layers below.
            structured_name_prefix: in front of every path.
        """
        found: dict[str, Any] = {} if destination is None else destination
        layers = self.named_sublayers(include_self=True) if include_sublayers else iter([("", self)])
        for path, layer in layers:
            for name, parameter in layer._parameters.items():
                if parameter is not None:
                    found[structured_name_prefix + (f"{path}.{name}" if path else name)] = _declared(parameter)
        return found

    def parameters(self, include_sublayers: bool = True) -> list[Any]:
        """Return the parameters, each once."""
        return [p for _, p in self.named_parameters(include_sublayers=include_sublayers)]

    def apply(self, fn: Callable[[Any], Any]) -> Layer:
        """Call a function with every layer, the inner ones first."""
        for layer in self.children():
            layer.apply(fn)
        fn(self)
        return self

    def full_name(self) -> str:
        """Return the prefix of the names of the parameters."""
        return str(self._helper.name)

    # --- attributes --------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Parameter, Layer)):
            # The dicts that hold parameters come with the base class; without them the parameter would be lost silently.
            if "_helper" not in self.__dict__:
                raise AttributeError(f"{type(self).__name__}: call super().__init__() before '{name}' is set")
            (self.add_parameter if isinstance(value, Parameter) else self.add_sublayer)(name, value)
            return
        for held in self._held():
            # None keeps the place: a bias that is switched off is still listed by name.
            if name in held and value is None:
                held[name] = None
                return
        self._forget(name)
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        for held in self._held():
            if name in held:
                value = held[name]
                return _declared(value) if isinstance(value, Parameter) else value
        raise AttributeError(f"{type(self).__name__} has no '{name}'")

    def __delattr__(self, name: str) -> None:
        if not self._forget(name):
            object.__delattr__(self, name)

    def _held(self) -> list[dict[str, Any]]:
        return [self.__dict__[kind] for kind in ("_parameters", "_sub_layers") if kind in self.__dict__]

    def _forget(self, name: str) -> bool:
        """Remove what has the name; True if something had."""
        holders = [*self._held(), self.__dict__]
        found = [held for held in holders if name in held]
        for held in found:
            del held[name]
        return bool(found)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *(name for held in self._held() for name in held)]

    def extra_repr(self) -> str:
        """Return what stands between the parentheses of the layer's text."""
        return ""

    def __repr__(self) -> str:
        inner = [f"({name}): {layer!r}".replace("\n", "\n  ") for name, layer in self.named_children()]
        body = "".join(f"\n  {line}" for line in inner)
        return f"{type(self).__name__}({self.extra_repr()}{body}" + ("\n)" if inner else ")")


def _scope_of(kind: str) -> str:
    """Return the prefix of names that the original makes of a class's name: LSTMCell is lstm_cell, and Conv2DTranspose conv2d_transpose."""
    apart = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", kind)
    return re.sub("([a-z])([A-Z])", r"\1_\2", apart).lower()


class HookRemover:
    """What takes a hook away again."""

    def __init__(self, hooks: dict[Any, Callable[..., Any]], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        hooks[self] = hook

    def remove(self) -> None:
        """Take the hook away."""
        self._hooks.pop(self, None)


def _declared(parameter: Parameter) -> Any:
    """Return the parameter of the default main program that has this one's name; declare it where there is none."""
    # A layer may be called in several programs; each declares the parameter once, and the scope has one value for all.
    program = default_main_program()
    if parameter.block.program is program:
        return parameter
    # Without an initializer: the startup program of the layer's own program gives the value.
    wishes = ParamAttr(**{fact: getattr(parameter, fact) for fact in _FACTS})
    return LayerHelper("parameter", parameter.name).create(wishes, parameter.name, parameter.type, None)


__all__ = ["Layer"]
