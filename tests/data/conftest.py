from corpus.conftest import own_cache, read_corpus  # noqa: F401  # fixtures
