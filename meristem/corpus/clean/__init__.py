"""Cleaning and quality filters for documents, and language identification."""
