"""docs/sparse_coming_from.md: its blocks run as they stand, and each program gives the same numbers in each library."""

from __future__ import annotations

import ast
import importlib
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joinsum
import numpy as np
import pytest
import torch

PAGE = Path(__file__).parents[3] / "docs" / "sparse_coming_from.md"
MODULES = {
    "joinsum": "joinsum",
    "scipy.sparse": "scipy.sparse",
    "torch.sparse": "torch",
    "GraphBLAS": "graphblas",
    "DuckDB": "duckdb",
}
HEAD = re.compile(r"^## (?P<section>.*)$|^\*\*(?P<library>[^*]+)\*\*|^Result: `(?P<result>.*)`$")

Array = np.ndarray[Any, Any]


def read_page() -> tuple[dict[tuple[str, str], str], dict[str, Any]]:
    """The code blocks by section and library ("" for data), and each section's result."""
    blocks: dict[tuple[str, str], str] = {}
    results: dict[str, Any] = {}
    section, library, block = "", "", None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if block is not None:
            if line == "```":
                assert (section, library) not in blocks, f"two blocks: {section}, {library}"
                blocks[section, library], block = "\n".join(block), None
            else:
                block.append(line)
        elif line == "```python":
            block = []
        elif found := HEAD.match(line):
            section = found["section"] or section
            library = "" if found["section"] else found["library"] or library
            if found["result"]:
                results[section] = ast.literal_eval(found["result"].replace("inf", "1e999"))
    return blocks, results


BLOCKS, RESULTS = read_page()
DATA = next(section for section, library in BLOCKS if library == "")
PROGRAMS = [section for section in dict.fromkeys(section for section, _ in BLOCKS) if section != DATA]


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


def run(*sections: tuple[str, str]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for section, library in sections:
        exec(compile(BLOCKS[section, library], f"{PAGE.name}: {section}, {library}", "exec"), names)
    return names


def of_rows(rows: list[tuple[Any, ...]], shape: tuple[int, ...], missing: float) -> Array:
    """The array of rows of coordinates and a value, as a database gives them."""
    array = np.full(shape, missing)
    for *place, value in rows:
        array[tuple(place)] = value
    return array


def dense(value: Any, shape: tuple[int, ...], missing: float) -> Array:
    """All elements, of any library's tensors; `missing` where nothing is stored."""
    if isinstance(value, list):
        return of_rows(value, shape, missing)
    if type(value).__module__.startswith("graphblas"):
        return np.asarray(value.value if shape == () else value.to_dense(missing))
    if isinstance(value, (torch.Tensor, joinsum.SparseTensor)):
        return np.asarray(value.to_dense())
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value)


def by_hand(section: str) -> Any:
    """The result by loops over the data, which know nothing of any library."""
    data = run((DATA, ""))
    size, links = data["size"], data["links"]
    vertices = range(size)
    if "vector" in section:
        return [sum(v * data["vector"][j] for a, j, v in links if a == i) for i in vertices]
    if "Triangles" in section:
        joined = {frozenset((i, j)) for i, j, _ in links}
        triples = [(i, j, k) for k in vertices for j in range(k) for i in range(j)]
        return sum({frozenset((i, j)), frozenset((j, k)), frozenset((i, k))} <= joined for i, j, k in triples)
    if "normalised" in section:
        degree = [sum(v for a, _, v in links if a == i) for i in vertices]
        return [
            [sum(v * data["features"][j][k] for a, j, v in links if a == i) / degree[i] for k in range(2)]
            for i in vertices
        ]
    if "Shortest" in section:
        weight = {(i, j): v for i, j, v in links} | {(i, i): 0.0 for i in vertices}

        def edge(i: int, j: int) -> float:
            return weight.get((i, j), math.inf)

        return [min(edge(0, middle) + edge(middle, end) for middle in vertices) for end in vertices]
    spent = np.zeros((data["regions"], data["categories"]))
    for customer, product, quantity in data["sales"]:
        for bought, category, price in data["prices"]:
            if bought == product:
                spent[dict(data["homes"])[customer], category] += quantity * price
    return spent


def test_every_program_is_there_in_every_library() -> None:
    assert len(PROGRAMS) == 5
    assert set(BLOCKS) == {(section, library) for section in (DATA, *PROGRAMS) for library in MODULES} | {(DATA, "")}
    assert list(RESULTS) == PROGRAMS


@pytest.mark.parametrize("section", PROGRAMS)
def test_the_printed_result_is_that_of_loops_over_the_data(section: str) -> None:
    np.testing.assert_allclose(np.array(RESULTS[section]), by_hand(section), rtol=1e-12)


@pytest.mark.parametrize("library", MODULES)
@pytest.mark.parametrize("section", PROGRAMS)
def test_a_program_gives_the_printed_result(section: str, library: str) -> None:
    if library != "joinsum":
        pytest.importorskip(MODULES[library], exc_type=ImportError)
    importlib.import_module(MODULES[library])
    wanted = np.array(RESULTS[section])
    found = run((DATA, ""), (DATA, library), (section, library))["y"]
    missing = math.inf if "Shortest" in section else 0.0
    np.testing.assert_allclose(dense(found, wanted.shape, missing), wanted, rtol=1e-6)
