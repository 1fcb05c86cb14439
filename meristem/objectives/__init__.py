"""Pretraining objectives, one per file: corruption of inputs, targets and loss."""
