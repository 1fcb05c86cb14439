"""Experiment tracking: metrics.jsonl, log.txt, progress bar and TensorBoard."""
