"""Canaries: random texts planted into the training split, whose memorisation can be measured (Carlini et al. 2019)."""
