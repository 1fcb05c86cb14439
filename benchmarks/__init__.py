"""Benchmarks: side-by-side measurements against the tools a user would use instead."""
