"""Side-by-side measurements against what a user would use instead."""
