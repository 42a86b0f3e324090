"""Readers of data sets.

`joinsum.data.extreme` reads the text format of the Extreme Classification Repository.
"""

from joinsum.data import extreme

__all__ = ["extreme"]
