"""Reinforcement learning from rewards: policy gradients (REINFORCE, RLOO, GRPO, PPO), rewards and best-of-N."""
