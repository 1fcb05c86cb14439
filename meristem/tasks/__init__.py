"""What a model is used for, one task per file: what its samples look like, its loss, its answers, its numbers."""
