"""HTTP routes: status, generation, language model operations, tasks."""
