"""The geometry of a convolution: which of its 16 numbers is where, in kernels and in what calls them.

All are whole numbers; sizes are in pixels, or in elements where channels are meant.
"""

from __future__ import annotations

#: Of the images that are read: rows, columns, channels.
HEIGHT, WIDTH, CHANNELS = 0, 1, 2
#: Of the result: rows, columns, and channels, of which every filter makes one.
OUT_HEIGHT, OUT_WIDTH, FILTERS = 3, 4, 5
#: Of a filter: rows and columns.
TAPS_Y, TAPS_X = 6, 7
#: From one result to the next, down and to the right; rows and columns of zeros before the image.
STRIDE_Y, STRIDE_X, PAD_Y, PAD_X = 8, 9, 10, 11
#: From one tap of a filter to the next.
DILATION_Y, DILATION_X = 12, 13
#: Groups of channels that do not see one another.
GROUPS = 14
#: Elements from pixel to pixel of what a kernel writes.
PITCH = 15
