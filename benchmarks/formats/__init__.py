"""Exports and imports compared with their real consumers and sources: `python -m benchmarks.formats`."""
