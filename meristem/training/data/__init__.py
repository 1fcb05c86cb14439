"""Training data: the interface, token shards for pretraining, and samples for fine-tuning and rewards."""
