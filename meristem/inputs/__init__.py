"""Model inputs: rows and batches, input templates, character ids, length buckets."""
