"""Views of pictures: an origin and two strides, so that a crop or a flip copies nothing."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.language import helper, intrinsic

#: Channels of a picture, at most.
MOST_CHANNELS = 4
#: Words of a view: address of the picture's first byte; its height and width; row and column of the view's first pixel in it; steps to the
#: next row and column (1 or -1); the view's height and width; the rows and columns of the picture that may be seen; the byte of every
#: channel where there is nothing; and which of the three buffers holds the picture (-1: it is not ours).
(
    AT,
    ROWS,
    COLUMNS,
    TOP,
    LEFT,
    DOWN,
    RIGHT,
    HEIGHT,
    WIDTH,
    TOP_SEEN,
    LEFT_SEEN,
    BOTTOM_SEEN,
    RIGHT_SEEN,
    FILL,
) = range(14)
BUFFER = FILL + MOST_CHANNELS
VIEW = BUFFER + 1


@intrinsic("uint8*", "int64")
def pointer_u8(env: Any, args: list[Any]) -> Any:
    """Return an address as a pointer to bytes."""
    return env.builder.inttoptr(args[0], env.type_of("uint8*"))


@helper
def whole(view, at, height, width, buffer):
    """Let a view be a whole picture."""
    view[AT], view[ROWS], view[COLUMNS] = at, height, width
    view[TOP], view[LEFT], view[DOWN], view[RIGHT] = 0, 0, 1, 1
    view[HEIGHT], view[WIDTH] = height, width
    view[TOP_SEEN], view[LEFT_SEEN], view[BOTTOM_SEEN], view[RIGHT_SEEN] = 0, 0, height, width
    view[BUFFER] = buffer


@helper
def seen(first, step, count, low, high):
    """Return from which to which of `count` positions first, first + step, ... lie in [low, high)."""
    if step > 0:
        begin, end = low - first, high - first
    else:
        begin, end = first - high + 1, first - low + 1
    begin = min(max(begin, 0), count)
    return begin, max(begin, min(end, count))


@helper
def _limit(view):
    """Let nothing be seen that the view does not show."""
    y, x = view[TOP], view[LEFT]
    y2, x2 = y + view[DOWN] * (view[HEIGHT] - 1), x + view[RIGHT] * (view[WIDTH] - 1)
    view[TOP_SEEN] = max(view[TOP_SEEN], min(y, y2))
    view[BOTTOM_SEEN] = min(view[BOTTOM_SEEN], max(y, y2) + 1)
    view[LEFT_SEEN] = max(view[LEFT_SEEN], min(x, x2))
    view[RIGHT_SEEN] = min(view[RIGHT_SEEN], max(x, x2) + 1)


@helper
def _is_full(view):
    """Return whether every pixel of a view lies in its picture."""
    a, b = seen(view[TOP], view[DOWN], view[HEIGHT], view[TOP_SEEN], view[BOTTOM_SEEN])
    c, d = seen(view[LEFT], view[RIGHT], view[WIDTH], view[LEFT_SEEN], view[RIGHT_SEEN])
    return b - a == view[HEIGHT] and d - c == view[WIDTH]


@helper
def _paint(view, channels, out, at, count):
    """Write pixels where nothing is."""
    for j in range(count):
        for c in range(channels):
            out[at + j * channels + c] = view[FILL + c]


@helper
def _write(view, channels, out):
    """Copy what a view shows, [height, width, channels]."""
    source = pointer_u8(view[AT])
    width = view[WIDTH]
    first, last = seen(view[LEFT], view[RIGHT], width, view[LEFT_SEEN], view[RIGHT_SEEN])
    step = view[RIGHT] * channels
    for i in range(view[HEIGHT]):
        y = view[TOP] + i * view[DOWN]
        begin, end = first, last
        if y < view[TOP_SEEN] or y >= view[BOTTOM_SEEN]:
            begin, end = width, width
        row = i * width * channels
        _paint(view, channels, out, row, begin)
        at = (y * view[COLUMNS] + view[LEFT]) * channels + begin * step
        if step == channels:
            for k in range((end - begin) * channels):
                out[row + begin * channels + k] = source[at + k]
        else:
            for j in range(begin, end):
                for c in range(channels):
                    out[row + j * channels + c] = source[at + c]
                at += step
        _paint(view, channels, out, row + end * channels, width - end)


@helper
def settle(view, channels, buffers, size):
    """Write what a view shows into a buffer, and let it be that."""
    buffer = (view[BUFFER] + 1) % 3
    at = buffers + buffer * size
    _write(view, channels, pointer_u8(at))
    whole(view, at, view[HEIGHT], view[WIDTH], buffer)


@helper
def settle_plain(view, channels, buffers, size):
    """Write what a view shows into a buffer, unless it is a part of its picture as that lies."""
    if view[DOWN] != 1 or view[RIGHT] != 1 or not _is_full(view):
        settle(view, channels, buffers, size)


@helper
def crop(view, word, channels, buffers, size):
    """Cut a box out, whose corners may lie outside: there the fill is seen."""
    y, x, height, width = int(word[1]), int(word[2]), int(word[3]), int(word[4])
    if y < 0 or x < 0 or y + height > view[HEIGHT] or x + width > view[WIDTH]:
        if not _is_full(view):
            settle(view, channels, buffers, size)
        _limit(view)
        for c in range(channels):
            view[FILL + c] = int(word[5 + c])
    view[TOP] += y * view[DOWN]
    view[LEFT] += x * view[RIGHT]
    view[HEIGHT], view[WIDTH] = height, width


@helper
def flip(view, word):
    """Turn a view over: word 1 up and down, word 2 left and right."""
    if word[1] != 0:
        view[TOP] += view[DOWN] * (view[HEIGHT] - 1)
        view[DOWN] = -view[DOWN]
    if word[2] != 0:
        view[LEFT] += view[RIGHT] * (view[WIDTH] - 1)
        view[RIGHT] = -view[RIGHT]
