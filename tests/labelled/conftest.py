from corpus.conftest import own_cache, read  # noqa: F401  # fixtures
