"""ASGI middleware: authentication, limits, admission, response headers."""
