"""One kind of tokenizer per file: what is empty before training, and how it learns from texts."""
