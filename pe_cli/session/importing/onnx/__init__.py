"""ONNX graphs become layers."""
