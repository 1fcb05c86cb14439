"""Helpers for all layers: random numbers, terminals, untrusted files, system errors, result tables."""
