"""Evaluation: held-out loss, perplexity, minimal pairs, task metrics, prompting, embeddings, attention maps."""
