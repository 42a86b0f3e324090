"""`examples/ist_elastic.py` with a rank that is lost in a phase of the exchange.

JOINSUM_TEST_LOSS is `<rank>@<exchange>:<phase>:<signal>`; phases: `before` the plan runs, `after` it has run, `begun`
the next round.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

import ist_elastic
from joinsum.ist.exchange import Exchange


def lose_this_rank(number: int, phase: str, name: str) -> None:
    """Ends (or stops) this process in a phase of its exchange of that number."""
    step, run = Exchange.step, Exchange._run
    exchanges = 0

    def strike(at: str) -> None:
        if exchanges == number and at == phase:
            os.kill(os.getpid(), getattr(signal, name))

    def counted(self: Exchange, *arguments: Any) -> Any:
        nonlocal exchanges
        exchanges += 1
        strike("before")
        means = step(self, *arguments)
        strike("begun")
        return means

    def ran(self: Exchange, *arguments: Any, **keywords: Any) -> Any:
        found = run(self, *arguments, **keywords)
        strike("after")
        return found

    Exchange.step, Exchange._run = counted, ran  # type: ignore[method-assign]


if __name__ == "__main__":
    who, phase, name = os.environ["JOINSUM_TEST_LOSS"].split(":")
    rank, _, number = who.partition("@")
    if "--rank" in sys.argv and sys.argv[sys.argv.index("--rank") + 1] == rank:
        lose_this_rank(int(number), phase, name)
    ist_elastic.main()
