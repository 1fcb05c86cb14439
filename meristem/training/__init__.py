"""Training: the training loop, optimizer steps, budgets, freezing, resuming, initial weights and metric logs."""
