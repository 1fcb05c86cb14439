"""One file per shape: what a task's samples are made of."""
