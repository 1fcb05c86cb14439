"""Honest and hostile clients of one server: the effect of hostile clients on latency, responses and memory."""
