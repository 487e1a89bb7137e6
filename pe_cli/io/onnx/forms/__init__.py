"""How ops are written in ONNX, a file a family."""
