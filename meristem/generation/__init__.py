"""Text generation, mask filling and scoring with a trained model."""
