"""Interrupted and resumed runs, compared bit for bit with uninterrupted ones."""
