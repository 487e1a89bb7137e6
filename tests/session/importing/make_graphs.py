"""Writes the files of `graphs/`: small networks with repeated parts as PyTorch's exporters write them.

It needs PyTorch, transformers, timm and onnxscript, which the tests do not: `pip install torch timm transformers onnx onnxscript`, then
`python -m tests.session.importing.make_graphs`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from tests.needs import torch

HERE = Path(__file__).parent / "graphs"


def bert() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """An encoder of three layers; its output is that of the last one."""
    import transformers as hf

    class Encoder(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            sizes = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 12}
            self.bert = hf.BertModel(hf.BertConfig(**sizes, vocab_size=20, max_position_embeddings=8), add_pooling_layer=False)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.bert(ids).last_hidden_state

    return Encoder(), (torch.arange(12).reshape(2, 6) % 20,)


def resnet() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """Bottlenecks of four stages; the exporter folds batch norm into the convolutions."""
    from timm.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [2, 3, 2, 2], channels=(2, 3, 4, 4), stem_width=4, num_classes=3), (torch.randn(2, 3, 32, 32),)


def mixer() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=3, img_size=8, patch_size=4, num_blocks=4, embed_dim=8), (torch.randn(2, 3, 8, 8),)


def slim(file: Path) -> None:
    """Take out what a file says of the lines of Python that it comes from."""
    import onnx

    model = onnx.load(file)
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output, *model.functions):
        part.doc_string = ""
        del part.metadata_props[:]
    onnx.save(model, file)


def write(name: str, make: Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]], dynamo: bool) -> None:
    torch.manual_seed(5)
    net, given = make()
    net.eval()
    with torch.no_grad():
        for key, value in net.state_dict().items():
            if value.dtype.is_floating_point:
                value.add_(0.1 * torch.rand_like(value) if key.endswith("running_var") else 0.1 * torch.randn_like(value))
    file = HERE / f"{name}.onnx"
    names = {"input_names": ["x"], "output_names": ["out"]}
    if dynamo:
        torch.onnx.export(net, given, file, dynamo=True, external_data=False, verbose=False, **names)
    else:
        torch.onnx.export(net, given, file, dynamo=False, dynamic_axes={"x": {0: "n"}, "out": {0: "n"}}, **names)
    slim(file)
    sys.stdout.write(f"{name}: {file.stat().st_size} bytes\n")


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for made in (bert, resnet, mixer):
            write(made.__name__, made, dynamo=False)
            write(f"{made.__name__}_dynamo", made, dynamo=True)
