"""How good a model is: loss, perplexity, bits per byte, minimal pairs."""
