#!/usr/bin/env python3
"""Writes the graph of what one Debian package needs, and what that needs, down to packages that need nothing.

An edge says that a package names another one in its Depends or Pre-Depends field: the first alternative of each clause.
Names that are no package of the index (virtual ones) are left out. Reads `apt-cache dumpavail` on standard input.
Usage: apt-cache dumpavail | python3 make_debian_dependencies.py ROOT OUT_DIR
"""

import gzip
import sys
from pathlib import Path


def dependencies(lines):
    """{package: sorted names that it depends on}, of the first entry of each package."""
    graph, entry = {}, {}
    for line in [*lines, "\n"]:
        if line == "\n":
            if entry and entry["Package"] not in graph:
                clauses = ",".join(entry.get(field, "") for field in ("Depends", "Pre-Depends")).split(",")
                names = (clause.split("|")[0].split("(")[0].split("[")[0].split(":")[0].strip() for clause in clauses)
                graph[entry["Package"]] = sorted({name for name in names if name})
            entry = {}
        elif not line[0].isspace() and ":" in line:
            field, _, value = line.partition(":")
            entry[field] = value.strip()
    return graph


def reached(graph, root):
    """Packages that are needed for `root`, itself first, in the order of a breadth-first search."""
    order = [root]
    known = {root}
    for package in order:
        for name in graph[package]:
            if name in graph and name not in known:
                known.add(name)
                order.append(name)
    return order


def main(root, out):
    graph = dependencies(sys.stdin)
    packages = reached(graph, root)
    with gzip.GzipFile(Path(out) / "edges.txt.gz", "wb", mtime=0) as file:
        for package in packages:
            needed = [name for name in graph[package] if name in graph]
            file.write((" ".join([package, *needed]) + "\n").encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
