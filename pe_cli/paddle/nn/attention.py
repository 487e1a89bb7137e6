"""Attention with several heads."""

from __future__ import annotations

import copy
from typing import Any

from pe_cli.core.types import FLOATS
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.nn.parametric import Linear


def refuse_cache(layer: Layer, cache: Any) -> None:
    """Raise unless there is no cache.

    Raises:
        NotThereYet: there is one.
    """
    if cache is not None:
        raise NotThereYet(
            f"{type(layer).__name__}: cache is not there yet", hint="decode the whole prefix at each step"
        )


def _added(mask: Any, like: Any) -> Any:
    """Return what is added to scores, with four axes.

    A mask of floats is as it is; one of bools or integers becomes 0 where it holds, else -1e9.
    """
    if mask is None:
        return None
    if mask.dtype not in FLOATS:
        # A mask of truths or integers keeps where it is 1: 0 becomes -1e9, which softmax turns into 0.
        mask = call("scale", call("cast", mask, like.dtype), 1e9, -1e9)
    before = list(range(4 - len(mask.shape)))
    return call("unsqueeze", mask, before) if before else mask


def each(attr: Any, count: int) -> list[Any]:
    """Return an attribute for each of several parameters: a list as given, or copies of one.

    Raises:
        FluidValueError: a list of another length.
    """
    if not isinstance(attr, (list, tuple)):
        return [copy.copy(attr) for _ in range(count)]
    if len(attr) not in (1, count):
        raise FluidValueError(
            f"there are {len(attr)} attributes for {count} parts", hint="give one for each, or one for all"
        )
    return list(attr) if len(attr) == count else each(attr[0], count)


class MultiHeadAttention(Layer):
    """Average values with weights from the likeness of queries and keys, each head in a projection of its own.

    Args:
        embed_dim: width of queries and of the result.
        num_heads: heads, which divide embed_dim.
        dropout: chance that a weight becomes 0 while training.
        kdim: width of keys; embed_dim by default.
        vdim: width of values; embed_dim by default.
        need_weights: return the weights, too.
        weight_attr: of the four weights.
        bias_attr: of the four biases; False for none.

    Raises:
        FluidValueError: num_heads does not divide embed_dim.

    Source:
        Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        kdim: int | None = None,
        vdim: int | None = None,
        need_weights: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise FluidValueError(f"MultiHeadAttention: {num_heads} heads on a width of {embed_dim}", hint="a divisor")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.need_weights = dropout, need_weights
        weights, biases = each(weight_attr, 4), each(bias_attr, 4)
        widths = embed_dim, kdim or embed_dim, vdim or embed_dim, embed_dim
        projections = [Linear(w, embed_dim, *attrs) for w, *attrs in zip(widths, weights, biases, strict=True)]
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = projections

    def forward(self, query: Any, key: Any = None, value: Any = None, attn_mask: Any = None, cache: Any = None) -> Any:
        """Append the attention.

        Args:
            query: [batch, time, embed_dim].
            key: [batch, time of keys, kdim]; query by default.
            value: [batch, time of keys, vdim]; query by default.
            attn_mask: [batch or 1, heads or 1, time or 1, time of keys]: floats are added to the scores; bools and
                integers tell which keys are seen.
            cache: None.

        Returns:
            [batch, time, embed_dim]; with need_weights also [batch, heads, time, time of keys].

        Raises:
            NotThereYet: a cache.
        """
        refuse_cache(self, cache)
        key, value = (query if v is None else v for v in (key, value))
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        use({"matmul_v2": 2, "reshape2": 4, "transpose": 4, "tmp": 1 if attn_mask is None else 2})
        with apart("attention"):
            mask = _added(attn_mask, q)
        # The fused op never stores the weights; it serves wherever nobody asks for them and none is dropped.
        if not self.need_weights and not (self.dropout and self.training):
            use({"softmax": 1})
            with apart("attention"):
                seen = call("attention", q, k, v, mask, self.num_heads)
            return self.out_proj(seen)
        with apart("attention"):
            q, k, v = (self._parted(x) for x in (q, k, v))
            # Vaswani et al. 2017, section 3.2.1: without the factor, products of wide heads push softmax to where its gradient vanishes.
            scores = call("matmul", q, k, False, True, self.head_dim**-0.5)
            scores = scores if mask is None else call("elementwise_add", scores, mask)
        weights = functions.softmax(scores)
        if self.dropout:
            weights = functions.dropout(weights, self.dropout, training=self.training)
        with apart("attention"):
            mixed = call("transpose", call("matmul", weights, v), [0, 2, 1, 3])
            mixed = call("reshape", mixed, [0, 0, self.embed_dim])
        out = self.out_proj(mixed)
        return (out, weights) if self.need_weights else out

    def _parted(self, x: Any) -> Any:
        """Return [batch, heads, time, width of a head]."""
        return call("transpose", call("reshape", x, [0, 0, self.num_heads, self.head_dim]), [0, 2, 1, 3])


__all__ = ["MultiHeadAttention"]
