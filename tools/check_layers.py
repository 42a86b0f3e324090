"""Checks the laws of the rooms: `tools/check_layers.py [project folder]`.

`tools/layers/floors.py` has the floors of csrc/ and of python/joinsum; a file reaches its own folder and the floors
below it. Includes count, and so do imports inside functions, under TYPE_CHECKING and by string. There is no circle of
files or of folders. A C++ namespace is its folder; private names stay in their room.
Prints one line `file:line: what is wrong` for each breach, then the shortest circles, and exits with 1 if there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from layers.cpp import CppSources
from layers.python import PythonSources


def main(arguments: list[str]) -> int:
    project = Path(arguments[0]) if arguments else Path(__file__).resolve().parent.parent
    cpp, python = CppSources(project), PythonSources(project)
    found = [*cpp.breaches(), *python.breaches()]
    for breach in found:
        print(breach)
    print(f"check_layers: {len(cpp.files)} C++ files, {len(python.modules)} modules, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
