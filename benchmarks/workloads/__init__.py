"""The work that contenders do, one file each."""

from __future__ import annotations

from frame.contenders import Workload

from workloads import ffnn, language_model, products

__all__ = ["WORKLOADS"]

WORKLOADS: dict[str, Workload] = {
    "language_model": language_model.WORKLOAD,
    "ffnn": ffnn.WORKLOAD,
    "products": products.WORKLOAD,
}
