"""Fine-tuning tasks, one per file: input encoding, head and loss, decoding of predictions, metrics."""
