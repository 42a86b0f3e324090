"""Capture: from graphs of ATen operators to programs of einsums and calls, which the planner distributes."""

from joinsum.capture.operators.table import register_operator, table, unregister_operator
from joinsum.capture.record import record
from joinsum.capture.recording.recorded import Recorded

__all__ = ["Recorded", "record", "register_operator", "table", "unregister_operator"]
