"""Precision at k, the measure of extreme multi-label classification, and its baseline.

>>> y = torch.tensor([[1.0, 1.0], [0.0, 1.0]])
>>> precision_at(torch.tensor([[0.9, 0.1], [0.8, 0.2]]), y, ks=(1, 2))
tensor([0.5000, 0.7500], dtype=torch.float64)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from joinsum.extreme.points import SparsePoints

__all__ = ["frequency_baseline", "precision_at", "precision_sums"]


def precision_sums(scores: torch.Tensor, y: torch.Tensor, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns float64 [len(ks)]: for each k, the sum over points of (relevant labels among the k best scores) / k.

    `scores` is [n, labels], any floating type; `y` is [n, labels], relevant where it is not 0. Sums of batches add up;
    divided by the number of points they are precision@k. Equal scores are ranked in an order that is not specified.

    Raises `ValueError` for other shapes, a k outside 1..labels, and NaN among the scores.
    """
    if scores.dim() != 2 or scores.shape != y.shape:
        raise ValueError(
            f"precision_at: scores and y are not matrices of one shape: "
            f"scores={tuple(scores.shape)}, y={tuple(y.shape)}"
        )
    _check_ks(ks, scores.shape[1])
    best = torch.topk(scores, max(ks), dim=1)
    # topk ranks NaN above every number, so any NaN of a row is among its best.
    if best.values.isnan().any():
        raise ValueError(f"precision_at: scores hold NaN: shape={tuple(scores.shape)}")
    hits = y.gather(1, best.indices).ne(0).sum(0, dtype=torch.float64).cumsum(0)
    return torch.stack([hits[k - 1] / k for k in ks])


def precision_at(scores: torch.Tensor, y: torch.Tensor, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns precision@k, float64 [len(ks)] between 0 and 1, of a batch of at least one point.

    Takes and raises what `precision_sums` does, and raises `ValueError` for an empty batch. Points with fewer than k
    labels count in full, so 1 may be out of reach.

    Source: The Extreme Classification Repository, "Evaluation metrics".
    """
    sums = precision_sums(scores, y, ks)
    if not len(scores):
        raise ValueError(f"precision_at: batch has no points: scores={tuple(scores.shape)}")
    return sums / len(scores)


def frequency_baseline(train: SparsePoints, test: SparsePoints, ks: Sequence[int] = (1, 3, 5)) -> torch.Tensor:
    """Returns precision@k, float64 [len(ks)], on `test` of always predicting the labels most frequent in `train`.

    Equally frequent labels are ranked by number. Raises `ValueError` for data sets with different labels, a k outside
    1..labels, and a `test` without points.
    """
    labels = train.header.labels
    if labels != test.header.labels or not len(test):
        raise ValueError(f"frequency_baseline: test does not fit train: train={train.header}, test={test.header}")
    _check_ks(ks, labels)
    ranking = np.argsort(-np.bincount(train.label_indices, minlength=labels), kind="stable")
    uses = np.bincount(test.label_indices, minlength=labels)[ranking].cumsum()
    return torch.tensor([uses[k - 1] / (k * len(test)) for k in ks], dtype=torch.float64)


def _check_ks(ks: Sequence[int], labels: int) -> None:
    if not ks or min(ks) < 1 or max(ks) > labels:
        raise ValueError(f"precision_at: k is out of range: ks={tuple(ks)}, labels={labels}")
