"""What tells a model how well it wrote: one reward per file."""
