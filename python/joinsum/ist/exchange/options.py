"""How subnets are exchanged: the options of `joinsum.IST` that hold for a whole training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from joinsum.base.dtypes import dtype_name
from joinsum.base.errors import PlanError
from joinsum.ist.exchange.relations import Homes

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """What `joinsum.IST` documents under these names."""

    state: Literal["carry", "reset"]
    homes: Homes
    buddy: bool
    wire: torch.dtype | None
    overlap: bool

    @property
    def carry(self) -> bool:
        """Whether the optimizer's moments follow their neurons."""
        return self.state == "carry"

    @property
    def overlaps(self) -> bool:
        """Whether what rests moves while a round trains, where it can."""
        return self.overlap and self.homes == "migrating" and not self.buddy

    def check(self) -> None:
        """Raises PlanError for values that there are not, or not together."""
        if self.state not in ("carry", "reset"):
            raise PlanError(f'IST: state is "carry" or "reset": state={self.state!r}')
        if self.homes not in ("migrating", "fixed"):
            raise PlanError(f'IST: homes are "migrating" or "fixed": homes={self.homes!r}')
        if self.buddy and self.homes == "fixed":
            raise PlanError('IST: copies are of migrating weights: buddy=True, homes="fixed"')
        if self.wire not in (None, torch.bfloat16):
            raise PlanError(f"IST: wire is torch.bfloat16 or None: wire={self.wire!r}")
        if self.wire is not None and self.homes == "fixed":
            raise PlanError(f'IST: what moves is rounded with migrating homes: wire={self.wire}, homes="fixed"')

    def wire_name(self, dtype: torch.dtype) -> str | None:
        """The smaller dtype to which elements that move are cast, as plans name it; None where they are not."""
        if self.wire is None or self.wire.itemsize >= dtype.itemsize:
            return None
        return dtype_name("IST", self.wire)
