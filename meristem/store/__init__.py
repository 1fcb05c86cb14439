"""Token ids on disk, checksummed and memory-mapped, and the views that cut rows from them."""
