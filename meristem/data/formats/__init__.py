"""File formats, one per module: each class declares its file endings and yields records with their locations."""
