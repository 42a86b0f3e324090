"""Baselines: the placements that people choose without a planner, for labels of a graph and for inputs of a program."""
