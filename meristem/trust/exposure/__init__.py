"""What a model has memorised of its training text: canary exposure, verbatim extraction, membership inference."""
