#!/usr/bin/env python3
"""Freeze the text of Debian's package bible-kjv-text as kjv.txt.xz: a verse a line, an empty line after each chapter.

Reads what `bible -f gen1:1-rev22:21` prints (of the package bible-kjv) on standard input; references go.
Usage: bible -f gen1:1-rev22:21 < /dev/null | python3 make_debian_kjv.py OUT_DIR
"""

import lzma
import re
import sys
from pathlib import Path

VERSE = re.compile(r"(\w+?\d+):\d+ (.*)")
VERSES = 31_102


def main(out):
    lines, chapters = [], []
    for line in sys.stdin:
        found = VERSE.fullmatch(line.strip())
        if found is None:
            sys.exit(f"make_debian_kjv: not a verse: line={line!r}")
        chapter, verse = found.groups()
        if chapters and chapters[-1] != chapter:
            lines.append("")
        chapters.append(chapter)
        lines.append(" ".join(verse.split()))
    if len(chapters) != VERSES:
        sys.exit(f"make_debian_kjv: verses are missing: given={len(chapters)}, wanted={VERSES}")
    text = "\n".join(lines) + "\n"
    Path(out, "kjv.txt.xz").write_bytes(lzma.compress(text.encode("ascii"), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(text):,} characters, {len(set(text))} different ones")


if __name__ == "__main__":
    main(sys.argv[1])
