"""Initial weights: from another run, an encoder, or word vectors."""
