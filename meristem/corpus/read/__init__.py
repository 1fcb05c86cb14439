"""Reading a corpus: sources, compression, encodings and one reader per file format."""
