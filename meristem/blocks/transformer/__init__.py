"""Transformer layers and stacks, decoders, segment memory, generators."""
