"""Numbers for kernels on every device: elementary functions, random numbers, means and sums in a fixed order."""
