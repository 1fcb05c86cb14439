"""Tokenizers: BPE, WordPiece, Unigram, characters and words, trained here or loaded, on the `tokenizers` library."""
