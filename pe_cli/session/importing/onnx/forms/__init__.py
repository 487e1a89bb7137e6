"""What nodes of ONNX become, a module for each family."""
