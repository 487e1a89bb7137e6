"""What op kernels are written with, knowing no op: the kernel language, its compiler and cache, microkernels, vector math."""
