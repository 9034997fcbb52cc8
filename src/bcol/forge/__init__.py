"""Datasets made here by D4RL's recipes: behaviour policies, recipes, generators."""
