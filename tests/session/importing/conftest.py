"""What is no test here."""

#: It needs PyTorch and transformers, which tests do not.
collect_ignore = ["make_folders.py"]
