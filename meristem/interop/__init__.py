"""Published weights in and ours out: one table per model type, read in both directions."""
