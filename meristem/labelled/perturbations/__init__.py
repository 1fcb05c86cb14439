"""Perturbations of text, one per file: noise that a person or a machine adds, and hostile input."""
