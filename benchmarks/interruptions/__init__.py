"""Interrupted runs, resumed and compared bit for bit with the run that was never interrupted."""
