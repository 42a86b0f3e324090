"""The work that contenders do, one file each."""

from __future__ import annotations

from frame.contenders import Workload

from workloads import (
    attention,
    cnn,
    embeddings,
    ffnn,
    language_model,
    models,
    nearest_neighbour,
    products,
    semirings,
    xml,
)

__all__ = ["WORKLOADS"]

WORKLOADS: dict[str, Workload] = {
    "language_model": language_model.WORKLOAD,
    "models": models.WORKLOAD,
    "cnn": cnn.WORKLOAD,
    "embeddings": embeddings.WORKLOAD,
    "ffnn": ffnn.WORKLOAD,
    "attention": attention.WORKLOAD,
    "products": products.WORKLOAD,
    "nearest_neighbour": nearest_neighbour.WORKLOAD,
    "semirings": semirings.WORKLOAD,
    "xml": xml.WORKLOAD,
}
