"""Tokenizer kinds, one per file: how each is built and trained."""
