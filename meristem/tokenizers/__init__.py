"""Text to numbers and back: trained here or loaded, on the `tokenizers` library."""
