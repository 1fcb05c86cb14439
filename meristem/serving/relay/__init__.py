"""Requests from the HTTP process to the model process and responses back, over one socket."""
