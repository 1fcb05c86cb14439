"""Reports of a finished run: the model card and suggested commands."""
