"""What is known about a plan, as values; printed as text, JSON, a graph and a page by the modules beside this one."""

from joinsum.explanation.explanation import Explanation
from joinsum.explanation.measured import Comparison, Figures, Measured
from joinsum.explanation.model import Alternative

__all__ = ["Alternative", "Comparison", "Explanation", "Figures", "Measured"]
