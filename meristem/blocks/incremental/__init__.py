"""Incremental decoding with a KV cache: one new token per sequence per step."""
