"""One idea of what to predict per file, and nothing else."""
