"""Runs plans: relations, einsum calls, compiled and planned graphs, their gradients and the torch operator."""
