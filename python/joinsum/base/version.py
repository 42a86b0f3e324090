"""joinsum's version, which rooms write into files; the public name is `joinsum.__version__`."""

from __future__ import annotations

__all__ = ["JOINSUM_VERSION"]

JOINSUM_VERSION = "0.1.0"
