"""The parts every family is made of: they know shapes and nothing else."""
