"""Record table: recipes trained on fixed text for a fixed budget, measured on held-out text and minimal pairs."""
