"""What is counted and cited."""
