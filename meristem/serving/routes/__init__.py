"""The routes, a few per file."""
