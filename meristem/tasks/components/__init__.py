"""The parts that tasks are composed of: input encoders, state readers, heads, losses, decoders, metrics, outputs."""
