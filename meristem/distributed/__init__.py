"""Distributed training: process groups and collectives, DDP and FSDP2 wrapping."""
