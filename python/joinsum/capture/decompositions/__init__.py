"""Operators of torch's dispatcher that rules call: decomposed ones, gradients alone, random numbers."""

from joinsum.capture.decompositions import (
    attention,
    cross_entropy,
    einsum,
    gradients,
    lookups,
    random,
    rms_norm,
)

__all__ = ["attention", "cross_entropy", "einsum", "gradients", "lookups", "random", "rms_norm"]
