"""The programs that `data.py` compares with: `python data_peer.py WHAT FILE` prints `{"figure": ..., "said": ...}`.

columns: pandas and scikit-learn's ColumnTransformer; torch, sklearn: from the file to a trained model; torchvision: pictures in a
DataLoader with two workers; webdataset: the same from archives; bpe, words: the package tokenizers.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

NUMBERS = [f"n{i}" for i in range(10)]
CATEGORIES = [f"c{i}" for i in range(6)]
EPOCHS, BATCH = 10, 1024


def transformer(one_hot: bool = False) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    kind = OneHotEncoder(handle_unknown="ignore", dtype=np.float32) if one_hot else OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2, dtype=np.int64
    )  # fmt: skip
    return ColumnTransformer([("n", numbers, NUMBERS), ("c", kind, CATEGORIES)])


def columns(path: str) -> dict[str, Any]:
    import pandas as pd

    transformer()  # imports
    begin = time.perf_counter()
    table = pd.read_csv(path)
    found = transformer().fit_transform(table)
    label = (table["y"] == "yes").to_numpy(np.int64)
    x = found[:, : len(NUMBERS)].astype(np.float32)
    codes = found[:, len(NUMBERS) :].astype(np.int64) + 2
    return {"figure": time.perf_counter() - begin, "said": f"{x.shape} {codes.shape} {label.mean():.3f}"}


def torch(path: str) -> dict[str, Any]:
    import pandas as pd
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(1)
    table = pd.read_csv(path)
    cut = len(table) - round(len(table) * 0.2)
    fitted = transformer().fit(table[:cut])
    found = fitted.transform(table)
    x = torch.from_numpy(found[:, : len(NUMBERS)].astype(np.float32))
    c = torch.from_numpy(found[:, len(NUMBERS) :].astype(np.int64) + 2)
    y = torch.from_numpy((table["y"] == "yes").to_numpy(np.int64))
    del table, found

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [int(c[:, i].max()) + 1 for i in range(len(CATEGORIES))]
            self.rows = nn.ModuleList(nn.Embedding(n, 8) for n in sizes)
            self.net = nn.Sequential(
                nn.Linear(len(NUMBERS) + 8 * len(sizes), 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)
            )

        def forward(self, x: Any, c: Any) -> Any:
            return self.net(torch.cat([x, *(row(c[:, i]) for i, row in enumerate(self.rows))], 1))

    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    loss_of = nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(x[:cut], c[:cut], y[:cut]), BATCH, shuffle=True, num_workers=0)
    for _ in range(EPOCHS):
        net.train()
        for a, b, label in loader:
            optimizer.zero_grad()
            loss_of(net(a, b), label).backward()
            optimizer.step()
    net.eval()
    with torch.no_grad():
        right = sum(
            int((net(x[i : i + 65536], c[i : i + 65536]).argmax(1) == y[i : i + 65536]).sum()) for i in range(cut, len(x), 65536)
        )
    return {"said": f"{right / (len(x) - cut):.5f}"}


def sklearn(path: str) -> dict[str, Any]:
    import pandas as pd
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline

    table = pd.read_csv(path)
    cut = len(table) - round(len(table) * 0.2)
    model = make_pipeline(
        transformer(one_hot=True), MLPClassifier((128, 64), batch_size=BATCH, max_iter=EPOCHS, random_state=1, tol=0, n_iter_no_change=99)
    )
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(table[:cut], table["y"][:cut])
    return {"said": f"{model.score(table[cut:], table['y'][cut:]):.5f}"}


def torchvision(path: str) -> dict[str, Any]:
    import torch
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = v2.Compose([
        v2.RandomCrop(224), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ])  # fmt: skip
    return counted(DataLoader(ImageFolder(path, steps), 64, shuffle=True, num_workers=2))


def webdataset(path: str) -> dict[str, Any]:
    """The same steps by NumPy, so that torchvision is not needed."""
    import random
    from glob import glob

    from webdataset import WebDataset, WebLoader

    mean, deviation = (np.array(values, np.float32) * 255 for values in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

    def steps(picture: Any) -> Any:
        left, top = (random.randint(0, size - 224) for size in picture.size)
        pixels = np.asarray(picture)[top : top + 224, left : left + 224]
        pixels = pixels[:, ::-1] if random.random() < 0.5 else pixels
        return ((pixels.astype(np.float32) - mean) / deviation).transpose(2, 0, 1)

    shards = sorted(glob(f"{path}/*.tar"))  # noqa: PTH207
    rows = WebDataset(shards, shardshuffle=len(shards)).shuffle(1000).decode("pilrgb").to_tuple("jpg", "cls")
    return counted(WebLoader(rows.map_tuple(steps, int).batched(64), batch_size=None, num_workers=2))


def counted(loader: Any) -> dict[str, Any]:
    """Return the pictures a second of an epoch."""
    samples, begin = 0, time.perf_counter()
    for images, _ in loader:
        samples += len(images)
    return {"figure": samples / (time.perf_counter() - begin)}


def bpe(path: str) -> dict[str, Any]:
    from tokenizers import ByteLevelBPETokenizer

    begin = time.perf_counter()
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([path], vocab_size=8000, min_frequency=1, show_progress=False)
    return encoded(tokenizer, path, begin)


def words(path: str) -> dict[str, Any]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    begin = time.perf_counter()
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train([path], trainers.WordLevelTrainer(vocab_size=8000, special_tokens=["<padding>", "<unknown>"], show_progress=False))
    return encoded(tokenizer, path, begin)


def encoded(tokenizer: Any, path: str, begin: float) -> dict[str, Any]:
    """Encode the file line by line, in batches, as one array of ids."""
    parts = []
    with open(path, encoding="utf-8") as file:  # noqa: PTH123
        lines: list[str] = []
        for line in file:
            lines.append(line)
            if len(lines) == 100_000:
                parts += [np.array(e.ids, np.int32) for e in tokenizer.encode_batch(lines)]
                lines = []
        parts += [np.array(e.ids, np.int32) for e in tokenizer.encode_batch(lines)]
    total = len(np.concatenate(parts))
    return {"figure": time.perf_counter() - begin, "said": f"{total:,} tokens"}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
