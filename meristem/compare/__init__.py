"""Comparison of recipes at equal budget: cells, measures, validity checks, statistics, report."""
