"""Annotations of pictures: boxes around things, as programs for drawing them save them."""
