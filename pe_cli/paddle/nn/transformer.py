"""Encoders and decoders made of attention with several heads."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from pe_cli.paddle.fluid.layers.tensor import assign
from pe_cli.paddle.nn import functional as functions
from pe_cli.paddle.nn import made
from pe_cli.paddle.nn.attention import MultiHeadAttention, each, refuse_cache
from pe_cli.paddle.nn.containers import LayerList
from pe_cli.paddle.nn.layer import Layer
from pe_cli.paddle.nn.norm import LayerNorm
from pe_cli.paddle.nn.parametric import Linear

Dropout: Any = vars(made)["Dropout"]


class _Block(Layer):
    """What layers of encoders and decoders share: parts with a residual, a norm and a dropout each.

    Args:
        d_model: width.
        nhead: heads of an attention.
        dim_feedforward: width between the two products.
        dropout: chance of a zero after every part.
        activation: name of an activation of `nn.functional`.
        attn_dropout: of the weights of an attention; dropout by default.
        act_dropout: after the activation; dropout by default.
        normalize_before: normalise before every part instead of after it.
        weight_attr: of the weights: one, or one for every part.
        bias_attr: of the biases, likewise.
    """

    #: Attentions before the two products.
    _attentions = 1

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
    ) -> None:
        super().__init__()
        self._config = (
            # Kept so that `again` can make further layers of the same sizes.
            d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout, normalize_before, weight_attr,
            bias_attr,
        )  # fmt: skip
        self.normalize_before = normalize_before
        self._activation = getattr(functions, activation)
        weights, biases = (each(attr, self._attentions + 1) for attr in (weight_attr, bias_attr))
        of_weights = dropout if attn_dropout is None else attn_dropout
        for i, name in enumerate(("self_attn", "cross_attn")[: self._attentions]):
            attrs = {"weight_attr": weights[i], "bias_attr": biases[i]}
            self.add_sublayer(name, MultiHeadAttention(d_model, nhead, of_weights, **attrs))
        # Attributes are copied: one object would give both products one parameter.
        self.linear1 = Linear(d_model, dim_feedforward, copy.copy(weights[-1]), copy.copy(biases[-1]))
        self.dropout = Dropout(dropout if act_dropout is None else act_dropout)
        self.linear2 = Linear(dim_feedforward, d_model, weights[-1], biases[-1])
        for i in range(1, self._attentions + 2):
            self.add_sublayer(f"norm{i}", LayerNorm(d_model))
            self.add_sublayer(f"dropout{i}", Dropout(dropout))

    def again(self) -> Any:
        """Return a layer of the same sizes with parameters of its own."""
        return type(self)(*self._config)

    def _part(self, i: int, x: Any, inner: Callable[[Any], Any]) -> Any:
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        # Normalised before each part (pre-norm) or after its residual (post-norm), by `normalize_before`.
        out = x + dropout(inner(norm(x) if self.normalize_before else x))
        return out if self.normalize_before else norm(out)

    def _products(self, x: Any) -> Any:
        return self.linear2(self.dropout(self._activation(self.linear1(x))))


class TransformerEncoderLayer(_Block):
    __doc__ = (_Block.__doc__ or "").replace(
        "What layers of encoders and decoders share: parts", "Attention to itself, then two products:"
    )

    def forward(self, src: Any, src_mask: Any = None, cache: Any = None) -> Any:
        """Append the parts: src and the result are [batch, time, d_model].

        Raises:
            NotThereYet: a cache.
        """
        refuse_cache(self, cache)
        out = self._part(1, src, lambda x: self.self_attn(x, x, x, src_mask))
        return self._part(2, out, self._products)


class TransformerDecoderLayer(_Block):
    __doc__ = (_Block.__doc__ or "").replace(
        "What layers of encoders and decoders share: parts", "Attention to itself and to a memory, then two products:"
    )
    _attentions = 2

    def forward(self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, cache: Any = None) -> Any:
        """Append the parts: tgt, memory and the result are [batch, time, d_model].

        Raises:
            NotThereYet: a cache.
        """
        refuse_cache(self, cache)
        out = self._part(1, tgt, lambda x: self.self_attn(x, x, x, tgt_mask))
        out = self._part(2, out, lambda x: self.cross_attn(x, memory, memory, memory_mask))
        return self._part(3, out, self._products)


class _Stack(Layer):
    """Layers of one kind and size in a row, each with parameters of its own.

    Args:
        layer: the first.
        num_layers: how many, at least 1.
        norm: a layer after the last, or None.
    """

    def __init__(self, layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__()
        # The first layer is the one that was given, as in the original; the others have parameters of their own.
        self.layers = LayerList([layer if i == 0 else layer.again() for i in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _through(self, x: Any, *given: Any) -> Any:
        for layer in self.layers:
            x = layer(x, *given)
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    __doc__ = (_Stack.__doc__ or "").replace("layer: the first", "encoder_layer: the first")

    def __init__(self, encoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(self, src: Any, src_mask: Any = None, cache: Any = None) -> Any:
        """Append the layers.

        Raises:
            NotThereYet: a cache.
        """
        refuse_cache(self, cache)
        return self._through(src, src_mask)


class TransformerDecoder(_Stack):
    __doc__ = (_Stack.__doc__ or "").replace("layer: the first", "decoder_layer: the first")

    def __init__(self, decoder_layer: Any, num_layers: int, norm: Any = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, cache: Any = None) -> Any:
        """Append the layers.

        Raises:
            NotThereYet: a cache.
        """
        refuse_cache(self, cache)
        return self._through(tgt, memory, tgt_mask, memory_mask)


class Transformer(Layer):
    """An encoder, and a decoder that attends to what it returns.

    Args:
        d_model: width.
        nhead: heads of an attention.
        num_encoder_layers: layers of the encoder.
        num_decoder_layers: layers of the decoder.
        dim_feedforward: width between the two products of a layer.
        dropout: chance of a zero after every part of a layer.
        activation: name of an activation of `nn.functional`.
        attn_dropout: of the weights of an attention; dropout by default.
        act_dropout: after the activation; dropout by default.
        normalize_before: normalise before every part instead of after it, and after the last layer.
        weight_attr: of the weights: one, or one for every part of a decoder's layer.
        bias_attr: of the biases, likewise; of two, the first is for attentions, the second for products.
        custom_encoder: instead of the encoder.
        custom_decoder: instead of the decoder.

    Source:
        Vaswani et al. 2017, section 3.1.
    """

    def __init__(  # noqa: PLR0913, PLR0917 (2.x's arguments)
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str = "relu",
        attn_dropout: float | None = None,
        act_dropout: float | None = None,
        normalize_before: bool = False,
        weight_attr: Any = None,
        bias_attr: Any = None,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
    ) -> None:
        super().__init__()
        sizes = d_model, nhead, dim_feedforward, dropout, activation, attn_dropout, act_dropout, normalize_before

        def ends() -> Any:
            # With pre-norm nothing else normalises the sum that leaves the last layer; with post-norm every layer ends in a norm.
            return LayerNorm(d_model) if normalize_before else None

        def encoder() -> Any:
            attrs = [_of_encoder(attr) for attr in (weight_attr, bias_attr)]
            return TransformerEncoder(TransformerEncoderLayer(*sizes, *attrs), num_encoder_layers, ends())

        def decoder() -> Any:
            layer = TransformerDecoderLayer(*sizes, *(_of_decoder(attr) for attr in (weight_attr, bias_attr)))
            return TransformerDecoder(layer, num_decoder_layers, ends())

        self.encoder = custom_encoder or encoder()
        self.decoder = custom_decoder or decoder()
        self.d_model, self.nhead = d_model, nhead

    def forward(self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None) -> Any:
        """Append both: src and tgt are [batch, time, d_model], the result is like tgt."""
        return self.decoder(tgt, self.encoder(src, src_mask), tgt_mask, memory_mask)

    def generate_square_subsequent_mask(self, length: int) -> Any:
        """Return [length, length]: 0 up to the diagonal and -1e9 beyond it, to be added to scores."""
        # -1e9 instead of -inf: where further masks hide all keys of a query, softmax gives even weights and not NaN.
        return assign(np.triu(np.full((length, length), -1e9, "float32"), 1))


def _of_encoder(attr: Any) -> Any:
    """Return an attribute for the parts of an encoder's layer; of three, the one for a memory is left out."""
    return [attr[0], attr[-1]] if isinstance(attr, (list, tuple)) and len(attr) == 3 else attr


def _of_decoder(attr: Any) -> Any:
    """Return an attribute for the parts of a decoder's layer; of two, the first is for both attentions."""
    return [attr[0], attr[0], attr[1]] if isinstance(attr, (list, tuple)) and len(attr) == 2 else attr


__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip
