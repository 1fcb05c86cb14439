"""Corpus processing: raw text is read, cleaned, filtered, deduplicated and split into documents, all accounted for."""
