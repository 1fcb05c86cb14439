"""Recipes and settings: frozen, validated, overridable from the command line."""
