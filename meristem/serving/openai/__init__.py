"""OpenAI-compatible routes: completions, chat, embeddings."""
