"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import joinsum
import pytest
from joinsum.capture import table

PACKAGE = Path(__file__).parents[3] / "python" / "joinsum"
DOCS = Path(__file__).parents[3] / "docs"
MODULES = sorted(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


@pytest.mark.parametrize("name", [name.removesuffix(".__init__") for name in MODULES])
def test_the_examples_of_a_module_hold(name: str) -> None:
    importlib.import_module(name)
    operators = {row.name for row in table()}
    # joinsum.plan, say, is a function too: the module is found here.
    failed, _ = doctest.testmod(sys.modules[name], optionflags=doctest.ELLIPSIS)
    assert failed == 0
    assert {row.name for row in table()} == operators, "an example leaves an operator registered"


@pytest.mark.parametrize(
    ("document", "examples"),
    [("einsum.md", 11), ("models.md", 7), ("training.md", 9), ("coming_from.md", 20), ("ist.md", 9)],
)
def test_the_examples_of_a_document_hold(document: str, examples: int) -> None:
    failed, tried = doctest.testfile(str(DOCS / document), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert failed == 0
    assert tried >= examples


@pytest.mark.parametrize("name", sorted(joinsum.__all__))
def test_every_public_name_is_documented(name: str) -> None:
    value = getattr(joinsum, name)
    assert isinstance(value, str) or len(value.__doc__ or "") > 20
