"""Distributed tensors: their operators, reductions, DTensor, checkpoints and batch shards."""
