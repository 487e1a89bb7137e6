"""What `fine_tuning.py` compares with: the same network, pictures and steps in PyTorch, by onnx2torch; prints one line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import helper

warnings.simplefilter("ignore")
FOLDER, CLASSES, EPOCHS, BATCH, RATE, SEED = Path(sys.argv[1]), *map(int, sys.argv[2:5]), float(sys.argv[5]), int(sys.argv[6])


def trunk() -> torch.nn.Module:
    """Return the network up to what its last layer reads; weights lie in nodes in this file, where onnx2torch does not look."""
    from onnx2torch import convert

    model = onnx.load(FOLDER / "model.onnx")
    graph = model.graph
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        graph.initializer.append(tensor)
        graph.node.remove(node)
    last = next(node for node in reversed(graph.node) if node.op_type in ("MatMul", "Gemm"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
    kept, read = [], {last.input[0]}
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            kept.insert(0, node)
            read.update(node.input)
    del graph.node[:]
    graph.node.extend(kept)
    return convert(model)


def main() -> None:
    """Train and ask."""
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    trained, asked = (np.load(FOLDER / f"{name}.npz") for name in ("train", "eval"))
    x, label = torch.from_numpy(trained["x"]), torch.from_numpy(trained["label"])[:, 0]
    body = trunk()
    with torch.no_grad():
        width = body.eval()(x[:1]).shape[-1]
    head = torch.nn.Linear(width, CLASSES)
    parameters = [*body.parameters(), *head.parameters()]
    steps = torch.optim.Adam(parameters, lr=RATE)
    body.train()
    times = []
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for at in range(0, len(x), BATCH):
            begin = time.perf_counter()
            chosen = order[at : at + BATCH]
            loss = torch.nn.functional.cross_entropy(head(body(x[chosen])), label[chosen])
            steps.zero_grad()
            loss.backward()
            steps.step()
            times.append(time.perf_counter() - begin)
    body.eval()
    with torch.no_grad():
        found = [head(body(part)).argmax(1) for part in torch.from_numpy(asked["x"]).split(BATCH)]
    share = (torch.cat(found).numpy() == asked["label"][:, 0]).mean()
    print(json.dumps({"accuracy": float(share), "ms": 1000 * statistics.median(times), "trained": sum(p.numel() for p in parameters)}))


if __name__ == "__main__":
    main()
