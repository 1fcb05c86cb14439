"""An example plugin: one component of every kind that Meristem takes from other packages."""
