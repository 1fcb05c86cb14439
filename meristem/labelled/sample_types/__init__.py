"""Sample types, one per file: the inputs and golds of the samples of a task."""
