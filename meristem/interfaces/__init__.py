"""Interfaces between layers: rows, batches, backbones, models, objectives, tasks."""
