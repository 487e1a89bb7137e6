"""Kernels and instructions for the CPU: convolution, matrix products, normalisation, microkernels."""
