"""Tokenized datasets: checksummed, memory-mapped shards of token ids, and views that cut training rows from them."""
