"""Honest and hostile clients of one server: what the hostile ones cost the honest ones."""
