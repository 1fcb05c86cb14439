"""From a recipe to a learner (model and objectives) and its data feeds."""
