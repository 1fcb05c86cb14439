"""Finished runs over HTTP: what each can do, batched across clients, within limits."""
