"""What the nodes of a run did."""

from __future__ import annotations

from joinsum import _C
from joinsum.base.text_table import count_text, seconds_text, text_table

__all__ = ["Trace"]

_COLUMNS = ["node", "operation", "sent B", "received B", "calls", "flops", "time", "peak B", "pooled B"]


class Trace(list[_C.NodeTrace]):
    """One entry for each node of a run, in the order they ran, for the sites of this process together.

    An entry has `node` and `operation` (as the plan prints them), `bytes_sent` and `bytes_received` (payload between
    different sites), `kernel_calls`, `flops`, `seconds`, `peak_bytes` (maximum of the bytes of blocks while it ran),
    `site_bytes` (of the run's bytes then, those of the site that has most: inputs, live blocks and messages) and
    `pooled_bytes` (of freed blocks that the store had not returned to the system when it ended). A join that is
    computed with the sum above it has no entry of its own.
    """

    @property
    def bytes_sent(self) -> int:
        """Payload bytes of the whole run."""
        return sum(entry.bytes_sent for entry in self)

    @property
    def pooled_bytes(self) -> int:
        """Bytes of freed blocks that the store had not returned to the system when the run ended."""
        return self[-1].pooled_bytes if self else 0

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(entry.seconds for entry in self)

    def __repr__(self) -> str:
        rows = [
            [
                entry.node,
                entry.operation,
                count_text(entry.bytes_sent),
                count_text(entry.bytes_received),
                count_text(entry.kernel_calls),
                count_text(entry.flops),
                seconds_text(entry.seconds),
                count_text(entry.peak_bytes),
                count_text(entry.pooled_bytes),
            ]
            for entry in self
        ]
        return text_table(_COLUMNS, rows, right=range(2, len(_COLUMNS)))
