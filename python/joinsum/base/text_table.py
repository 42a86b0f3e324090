"""Tables of text, for the terminal: no dependency, so that `import joinsum` stays light."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["count_text", "seconds_text", "text_table"]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lays out `rows` below `header` in columns; those in `right` are flush right. A last column is not padded.

    >>> print(text_table(["node", "bytes"], [["t0", "12"], ["t10", "3"]], right=[1]))
    node  bytes
    ----  -----
    t0       12
    t10       3
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    lines.insert(1, ["-" * width for width in widths])
    aligned = [
        [line[i].rjust(width) if i in right else line[i].ljust(width) for i, width in enumerate(widths)]
        for line in lines
    ]
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def count_text(count: float) -> str:
    """Exact below ten million, then in powers of ten.

    >>> count_text(1234567), count_text(1.5e12)
    ('1,234,567', '1.5e+12')
    """
    return f"{count:,.0f}" if count < 1e7 else f"{count:.4g}"


def seconds_text(seconds: float) -> str:
    """Seconds in the unit that suits them.

    >>> seconds_text(0), seconds_text(3e-10), seconds_text(2.5e-5), seconds_text(0.25), seconds_text(90)
    ('0 s', '0.3 ns', '25 us', '250 ms', '90 s')
    """
    if seconds == 0:
        return "0 s"
    for limit, unit, name in ((1e-6, 1e-9, "ns"), (1e-3, 1e-6, "us"), (1.0, 1e-3, "ms")):
        if seconds < limit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.3g} s"
