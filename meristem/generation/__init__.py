"""Writing, filling and scoring with a finished model."""
