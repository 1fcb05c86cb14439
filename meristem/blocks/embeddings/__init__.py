"""Token, character and image embeddings."""
