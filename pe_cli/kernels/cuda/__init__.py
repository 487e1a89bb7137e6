"""The kernel language on CUDA: its compiler, loops over a grid, tensor cores, and launches that do the work of several."""
