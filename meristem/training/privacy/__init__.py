"""Differentially private training (DP-SGD): sampling, per-sample clipping, noise, and the accountant."""
