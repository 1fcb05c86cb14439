"""Federated training: each owner trains on their own text, and only weight updates are combined."""
