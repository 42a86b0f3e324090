"""Takes the pictures of pages that docs/explain.md shows. Needs Chromium."""

from __future__ import annotations

import tempfile
from pathlib import Path

import browser
import joinsum
from joinsum.cli.program import with_sizes

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "plans"
# Chromium's number for the colours that the reader prefers.
_LIGHT, _DARK = "1", "0"


def step() -> joinsum.Explanation:
    """A training step on four sites."""
    joinsum.init(sites=4)
    program = joinsum.parse((FOLDER / "ffnn.tra").read_text(encoding="utf-8"))
    return joinsum.explain(program, {"X": "(0, 0)", "Y": "(0, 0)", "W1": "(0, 1)", "W2": "(0, 1)"})


def neighbour() -> joinsum.Explanation:
    """A nearest neighbour on eight sites."""
    joinsum.init(sites=8)
    program = joinsum.parse(with_sizes((FOLDER / "neighbour.tra").read_text(encoding="utf-8"), {"n": 8000, "d": 1600}))
    return joinsum.explain(program, {"X": "(0, 0, 0)", "Q": "replicated", "M": "(0, 0, 0)"})


def main() -> None:
    """Writes docs/explain-light.png and docs/explain-dark.png, the first move opened."""
    for name, told, scheme in (("light", step(), _LIGHT), ("dark", neighbour(), _DARK)):
        into = ROOT / "docs" / f"explain-{name}.png"
        first = next(node.name for node in told.plan.nodes if node.moves)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "plan.html"
            page.write_text(told.to_html(), encoding="utf-8")
            scheme_option = f"--blink-settings=preferredColorScheme={scheme}"
            browser.picture(page, f"#node={first}", into, 1480, 1060, scheme_option)
        print(f"{into.relative_to(ROOT)}: {into.stat().st_size:,} B")


if __name__ == "__main__":
    main()
