"""Kernels that read text: lines, CSV cells, decimal numbers, tokens and byte-pair encoding."""
