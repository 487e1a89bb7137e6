"""What reads pictures."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data.pictures import decode, picture_checks
from pe_cli.paddle.vision.datasets import ImageFolder
from tests.fuzz.targets import refused, target

#: Bytes that a picture of a small file may take: it has 16 million pixels at most, of four bytes, which are converted once.
ROOM = 1 << 28


@target
def picture(data: bytes, folder: Path) -> None:
    """A file of a picture: its header is read, and its pixels, in some size and mode."""
    draw = random.Random(zlib.crc32(data))
    path = folder / "f.png"
    path.write_bytes(data)
    size = draw.choice((None, (8, 8), (24, 5)))
    recipe = decode.Recipe(size, draw.choice(("rgb", "gray", "rgba")), draw.choice(("stretch", "cover", "contain")))
    with refused(folder, ROOM):
        head = decode.header(str(path), recipe.mode, (len(data), draw.getrandbits(62)))
        try:
            found = decode.read(str(path), recipe)
        except picture_checks.Unreadable as error:
            raise PeError(f"{path} {error.broken.why}", hint=error.broken.hint, code=ExitCode.DATA) from None
        assert isinstance(head, decode.Header)
        assert found.shape == (*(size or (head.height, head.width)), decode.CHANNELS[recipe.mode])
        assert found.dtype == np.uint8


@target
def picture_folder(data: bytes, folder: Path) -> None:
    """A file of a folder of pictures that a script reads."""
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    (pictures / "f.jpg").write_bytes(data)
    with refused(folder, ROOM):
        found = ImageFolder(pictures)[0][0]
        assert found.mode == "RGB"
