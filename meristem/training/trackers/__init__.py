"""Experiment trackers, one per file: `TRACKERS["tensorboard"]`."""
