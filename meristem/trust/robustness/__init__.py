"""Robustness of a fine-tuned run: its metrics under noise, calibration, tests of one's own, hostile input."""
