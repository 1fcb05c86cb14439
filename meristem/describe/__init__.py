"""`meristem describe`: parameters, FLOPs, memory and speed of a recipe, and the state of a run."""
