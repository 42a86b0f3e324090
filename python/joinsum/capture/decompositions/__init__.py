"""Operators of torch's dispatcher that rules call: what autograd and fake tensors need of them, and their nodes."""

from joinsum.capture.decompositions import attention, cross_entropy, einsum, random, resize, rms_norm, sparse_products

__all__ = ["attention", "cross_entropy", "einsum", "random", "resize", "rms_norm", "sparse_products"]
