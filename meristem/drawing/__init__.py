"""Plots and reports: training curves, attention heat maps, and reports as HTML and in the terminal."""
