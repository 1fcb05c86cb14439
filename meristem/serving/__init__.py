"""HTTP server for finished runs: batching across clients, continuous batching, limits, OpenAI-compatible routes."""
