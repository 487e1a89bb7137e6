"""Folders as Hugging Face's transformers write them; a family of models is a file in `families/`."""
