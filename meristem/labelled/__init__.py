"""Labelled data sets: files in many formats (CSV, JSONL, Parquet, CoNLL, SQuAD, …) become samples for fine-tuning."""
