"""Trust in a model: exposure of training text, robustness to noisy input, label noise, federated training."""
