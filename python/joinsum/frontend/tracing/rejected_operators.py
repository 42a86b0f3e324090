"""Operators that reject their operands while torch traces a call: the sizes and the module, for an error of ours."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from torch import fx
from torch._guards import TracingContext

from joinsum.capture.recording.application import module_path

__all__ = ["RejectedOperator", "rejected_operators"]

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")
_SAYS = "failed while attempting to run meta for"


class RejectedOperator(logging.Filter):
    """The last operator that torch logged as failing, which it logs with a traceback before it raises; a filter that
    leaves these records out.

    sizes    of the symbols in the error's message
    module   the user's module that calls it; empty where that is not known
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[str, str] = {}
        self.module = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith(_SAYS):
            return True
        tracing = TracingContext.try_get()
        shapes = None if tracing is None or tracing.fake_mode is None else tracing.fake_mode.shape_env
        # Named `var_to_val` before torch 2.13.
        values = getattr(shapes, "backed_var_to_val", None) or getattr(shapes, "var_to_val", None) or {}
        self.sizes = {str(symbol): str(value) for symbol, value in values.items()}
        self.module = _calling_module()
        return False


@contextmanager
def rejected_operators() -> Iterator[RejectedOperator]:
    """Keeps torch's log of operators that reject their operands, which an error says."""
    rejected = RejectedOperator()
    _LOGGER.addFilter(rejected)
    try:
        yield rejected
    finally:
        _LOGGER.removeFilter(rejected)


def _calling_module() -> str:
    """The module of the node that Dynamo evaluates at this moment."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        node = frame.f_locals.get("node") if frame.f_code.co_name == "get_fake_value" else None
        if isinstance(node, fx.Node):
            return module_path(node)
    return ""
