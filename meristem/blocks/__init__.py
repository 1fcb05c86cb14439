"""Building blocks of all model families: attention, embeddings, heads, transformer and recurrent layers, decoding."""
