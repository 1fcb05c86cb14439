"""Fine-tuning on labelled data: runs, hyperparameter grids and task reports."""
