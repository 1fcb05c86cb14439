"""Objectives of reward training, one per file: `POLICY_OBJECTIVES["policy"]`."""
