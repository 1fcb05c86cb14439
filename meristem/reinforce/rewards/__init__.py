"""Rewards, one per file: each scores completions of prompts."""
