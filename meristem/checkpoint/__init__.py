"""Checkpoints that survive a kill, a full disk and a flipped bit; and the run folders that hold them."""
