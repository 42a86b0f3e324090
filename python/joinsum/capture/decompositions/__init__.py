"""Operators of torch's dispatcher that rules call: what autograd and fake tensors need of them, and their nodes."""

from joinsum.capture.decompositions import cross_entropy, einsum, random, rms_norm

__all__ = ["cross_entropy", "einsum", "random", "rms_norm"]
