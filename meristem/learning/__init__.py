"""Backbone, heads and objectives made one, and samples made batches."""
