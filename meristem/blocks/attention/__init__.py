"""Attention: multi-head, cross and relative, with masks and position encodings."""
