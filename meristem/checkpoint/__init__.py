"""Checkpoints (atomic, verified by SHA-256, without pickle) and the run folders that hold them."""
