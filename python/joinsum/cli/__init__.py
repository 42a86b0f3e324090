"""The command `joinsum`.

Exit codes: 0 done; 1 the loss diverged, something that joinsum needs does not work, or a defect; 2 wrong usage; 3
malformed data or program; 4 no plan fits; 5 a site was lost; 130 interrupted.
"""

from joinsum.cli.main import main

__all__ = ["main"]
