"""Sources, one reader per file format, and text units, shared by the corpus and by labelled data."""
