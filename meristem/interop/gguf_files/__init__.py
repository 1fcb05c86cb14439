"""GGUF: runs as files of llama.cpp, and such files as runs."""
