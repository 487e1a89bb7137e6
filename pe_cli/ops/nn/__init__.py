"""Ops of neural networks: convolutions, pools, norms, attention, embeddings, the dense LSTM."""
