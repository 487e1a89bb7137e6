"""fluid.log_helper: loggers that write to the terminal."""

from __future__ import annotations

import logging


def get_logger(name: str, level: int, fmt: str | None = None) -> logging.Logger:
    """Return a logger with one handler, whose messages go to no other logger.

    Args:
        name: of the logger.
        level: from which messages are shown.
        fmt: of a line.
    """
    logger = logging.getLogger(name)
    logger.setLevel(level)
    # A second call for the same name must not write every message twice.
    if not logger.handlers:
        handler = logging.StreamHandler()
        if fmt:
            handler.setFormatter(logging.Formatter(fmt))
        logger.addHandler(handler)
    logger.propagate = False
    return logger


__all__ = ["get_logger"]
