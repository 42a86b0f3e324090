"""Expressions as text: `+[j] *(A[i, j], B[j], 2)` is an aggregate over j of a map over two inputs and a literal."""

from __future__ import annotations

import re

from .expressions import Expression
from .operators import AGGREGATES, FOLDS

TOKEN = re.compile(r"\s*(-?inf\b|-?\d+(?:\.\d+)?|\w+|[*+,()\[\]-])")


def parse(text: str) -> Expression:
    tokens = TOKEN.findall(text)
    expr, end = parse_from(tokens, 0)
    assert end == len(tokens), f"text goes on after {tokens[:end]}: {text}"
    return expr


def parse_from(tokens: list[str], at: int) -> tuple[Expression, int]:
    name = tokens[at]
    follows = tokens[at + 1] if at + 1 < len(tokens) else ""
    if follows == "(":
        arguments, at = [], at + 1
        while tokens[at] != ")":
            argument, at = parse_from(tokens, at + 1)
            arguments.append(argument)
        return ["map", name, arguments], at + 1
    if follows == "[":
        end = tokens.index("]", at)
        indices = [token for token in tokens[at + 2 : end] if token != ","]
        if name not in AGGREGATES:
            return ["in", name, indices], end + 1
        body, after = parse_from(tokens, end + 1)
        return ["agg", name, indices, body], after
    return ["lit", name if "inf" in name else float(name)], at + 1


def canonical(expr: Expression) -> str:
    """Text with the arguments of commutative maps and the indices of aggregates sorted."""
    match expr:
        case ["map", operator, below]:
            texts = [canonical(child) for child in below]
            return f"{operator}({', '.join(sorted(texts) if operator in {*FOLDS, 'eq'} else texts)})"
        case ["agg", operator, indices, body]:
            return f"{operator}[{', '.join(sorted(indices))}] {canonical(body)}"
        case ["in", name, indices]:
            return f"{name}[{', '.join(indices)}]"
        case ["lit", value]:
            return str(float(value))
    raise ValueError(f"unknown expression: {expr}")


def same(text: str) -> str:
    return canonical(parse(text))
