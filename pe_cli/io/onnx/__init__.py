"""Programs as ONNX models."""
