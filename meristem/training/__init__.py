"""The loop and what it needs: optimizers, schedules, budgets, journal."""
