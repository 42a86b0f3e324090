"""An extreme multi-label classifier, a client of the public interface, with its data loader."""

from joinsum.extreme.points import DenseBatch, SparsePoints, load
from joinsum.extreme.points_file import DataError, Header, Point, PointStream, read_points
from joinsum.extreme.precision import frequency_baseline, precision_at, precision_sums

__all__ = [
    "DataError",
    "DenseBatch",
    "Header",
    "Point",
    "PointStream",
    "SparsePoints",
    "frequency_baseline",
    "load",
    "precision_at",
    "precision_sums",
    "read_points",
]
