"""Libraries of NVIDIA's that compute what kernels of ours do, where they are faster on the card at hand."""
