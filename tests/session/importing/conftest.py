"""What is no test here."""

#: They need PyTorch and transformers, which tests do not.
collect_ignore = ["make_folders.py", "make_graphs.py"]
