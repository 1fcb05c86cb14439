"""Raw text becomes documents: read, cleaned, deduplicated, split, and every one accounted for."""
