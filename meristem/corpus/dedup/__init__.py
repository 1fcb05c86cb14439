"""Exact and near-duplicate removal: digests, MinHash signatures, an LSH index."""
