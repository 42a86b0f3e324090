"""Operators of torch's dispatcher that rules call: decomposed ones, gradients alone, random numbers."""

from joinsum.capture.decompositions import attention, einsum, gradients, lookups, random, softmax_and_norms

__all__ = ["attention", "einsum", "gradients", "lookups", "random", "softmax_and_norms"]
