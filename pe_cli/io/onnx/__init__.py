"""Programs as ONNX models."""

from pe_cli.io.onnx.export import OPSET, export

__all__ = ["OPSET", "export"]
