"""Independent subnet training: random subnets on the sites, which exchange neurons after every few steps."""

from joinsum.ist.ist import IST

__all__ = ["IST"]
