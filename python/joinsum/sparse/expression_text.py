"""Expressions as plans print them, which queries of sites carry: read back into lists."""

from __future__ import annotations

import re
from typing import Any

from joinsum import _C
from joinsum.base.arguments import show
from joinsum.base.errors import PlanError
from joinsum.sparse.expressions import number_at

__all__ = ["expression_of_text"]

_TOKEN = re.compile(r"\s*(-?inf\b|-?\d[\d.]*(?:e[-+]?\d+)?|[A-Za-z_]\w*|[-+*/()\[\],])")
_INFIX = ("+", "-", "*", "/")


def expression_of_text(text: str) -> list[Any]:
    """The expression that `joinsum.sparse` prints like this, as `docs/sparse.md` writes it.

    Raises PlanError for another text.

    >>> expression_of_text("+[c]((x0[a,c] * x1[c,b] * 2))")[3]
    ['map', '*', [['in', 'x0', ['a', 'c']], ['in', 'x1', ['c', 'b']], ['lit', 2.0]]]
    """
    return _Reader(text).whole()


class _Reader:
    """Reads a text from its beginning."""

    def __init__(self, text: str) -> None:
        self._text, self._operators = text, _C.sparse_operators()
        self._tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self._wrong()
            self._tokens.append(found[1])
            at = found.end()
        self._next = 0

    def whole(self) -> list[Any]:
        out = self._expression()
        if self._peek() != "":
            raise self._wrong()
        return out

    def _expression(self) -> list[Any]:
        token = self._take()
        if token == "(":
            return self._between()
        if token.lstrip("-")[:1].isdigit() or token in ("inf", "-inf"):
            return ["lit", number_at(token if "inf" in token else float(token), "$")]
        if token in self._operators and self._peek() == "(":
            return ["map", token, self._list()]
        indices = self._names()
        if token in self._operators and self._peek() == "(":
            reduced = self._list()
            if len(reduced) != 1:
                raise self._wrong()
            return ["agg", token, indices, reduced[0]]
        return ["in", token, indices]

    def _between(self) -> list[Any]:
        """After `(`: operands with one operator between them."""
        children, operator = [self._expression()], self._peek()
        while (token := self._take()) != ")":
            if token not in _INFIX or token != operator:
                raise self._wrong()
            children.append(self._expression())
        return ["map", operator, children] if len(children) > 1 else children[0]

    def _list(self) -> list[Any]:
        """Expressions in parentheses."""
        self._expect("(")
        out = [self._expression()]
        while (token := self._take()) != ")":
            if token != ",":
                raise self._wrong()
            out.append(self._expression())
        return out

    def _names(self) -> list[str]:
        self._expect("[")
        names: list[str] = []
        while (token := self._take()) != "]":
            if token != ",":
                names.append(token)
        return names

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        if self._next == len(self._tokens):
            raise self._wrong()
        self._next += 1
        return self._tokens[self._next - 1]

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._wrong()

    def _wrong(self) -> PlanError:
        return PlanError(f"sparse expression: it is not as plans print them: text={show(self._text)}")
