"""Inference models and programs of PaddlePaddle 1.x become layers."""
