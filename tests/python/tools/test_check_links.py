"""Claims about the check of documents: it names each link and each file that points nowhere, with its line."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tools"))
import check_links

PAGE = """# First page

## What a `name` is

[this](#what-a-name-is), [that](other.md#second), [lost](gone.md), [nowhere](other.md#third)
`csrc/ia/exchange` is there, `csrc/ia/exchange*` too, `csrc/ia/gone.cpp` is not; `f[a](b)` is no link.

```text
[in a block](gone.md)
$ python examples/gone.py
```
"""


def test_links_sections_and_named_files_that_are_missing_are_named_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "csrc" / "ia").mkdir(parents=True)
    (tmp_path / "csrc" / "ia" / "exchange.h").touch()
    (tmp_path / "docs" / "page.md").write_text(PAGE)
    (tmp_path / "docs" / "other.md").write_text("# Other\n\n## Second\n")
    assert list(check_links.faults(tmp_path)) == [
        "docs/page.md:5: no such file: gone.md",
        "docs/page.md:5: no such section: other.md#third",
        "docs/page.md:6: no such file: csrc/ia/gone.cpp",
        "docs/page.md:10: no such file: examples/gone.py",
    ]
