"""What `language_tuning.py` compares with: makes the language model, and adapts it with the same rows in PyTorch; prints a line of JSON."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

del sys.path[0]  # this folder has a kernels.py, for which transformers looks, too
import transformers  # noqa: E402

warnings.simplefilter("ignore")
FOLDER = Path(sys.argv[1])


class LowRank(torch.nn.Module):
    """A linear layer with a product of two small matrices beside it; the second one begins at 0."""

    def __init__(self, layer: torch.nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.layer, self.share = layer, alpha / rank
        self.a = torch.nn.Parameter(torch.empty(rank, layer.in_features))
        self.b = torch.nn.Parameter(torch.zeros(layer.out_features, rank))
        torch.nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add both."""
        return self.layer(x) + self.share * (x @ self.a.T @ self.b.T)


def read(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of bytes and what follows each."""
    found = np.load(FOLDER / f"{name}.npz")
    return torch.from_numpy(found["input_ids"]), torch.from_numpy(found["next"])


def trained(model: torch.nn.Module, name: str, epochs: int, batch: int, rate: float) -> list[float]:
    """Train what is trainable; return the seconds of each step."""
    ids, wanted = read(name)
    steps, times = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=rate), []
    model.train()
    for _ in range(epochs):
        order = torch.randperm(len(ids))
        for at in range(0, len(ids), batch):
            begin, chosen = time.perf_counter(), order[at : at + batch]
            loss = torch.nn.functional.cross_entropy(model(input_ids=ids[chosen]).logits.flatten(0, 1), wanted[chosen].flatten())
            steps.zero_grad()
            loss.backward()
            steps.step()
            times.append(time.perf_counter() - begin)
    return times


def asked(model: torch.nn.Module) -> dict[str, float]:
    """Return the loss on new texts, and the share of bytes that are told."""
    ids, wanted = read("eval")
    with torch.no_grad():
        scores = model.eval()(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())
    return {"loss": loss.item(), "accuracy": (scores.argmax(-1) == wanted).float().mean().item()}


def main() -> None:
    """Make the model, or adapt it."""
    torch.set_num_threads(2)
    if sys.argv[2] == "make":
        torch.manual_seed(1)
        config = transformers.LlamaConfig(
            vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
        trained(model, "first", 4, 16, 0.003)
        model.save_pretrained(FOLDER / "llama")
        print(json.dumps(asked(model)))
        return
    batch, epochs, rank, seed = (int(sys.argv[i]) for i in (3, 4, 6, 8))
    rate, alpha = float(sys.argv[5]), float(sys.argv[7])
    torch.manual_seed(seed)
    model = transformers.LlamaForCausalLM.from_pretrained(FOLDER / "llama")
    for value in model.parameters():
        value.requires_grad_(False)
    for layer in model.model.layers:
        layer.self_attn.q_proj = LowRank(layer.self_attn.q_proj, rank, alpha)
        layer.self_attn.v_proj = LowRank(layer.self_attn.v_proj, rank, alpha)
    times = trained(model, "train", epochs, batch, rate)
    print(json.dumps({**asked(model), "ms": 1000 * statistics.median(times)}))


if __name__ == "__main__":
    main()
