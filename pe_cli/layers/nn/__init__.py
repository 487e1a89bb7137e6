"""Layers of networks: products, convolutions, norms, embeddings, attention."""
