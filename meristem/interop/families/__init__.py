"""One transformers model type per file, named as its `model_type` in config.json."""
