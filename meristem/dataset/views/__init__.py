"""Dataset views, one per file: how a token stream is cut into rows; `DATASET_VIEWS["windows"]`."""
