"""An explanation as a page: the template `page.html` with the document in it. It loads nothing from anywhere."""

from __future__ import annotations

import html
import json
from functools import cache
from importlib import resources
from typing import Any

from joinsum.explanation.document import document
from joinsum.explanation.model import ExplainedPlan

__all__ = ["embedded_page", "page"]

_PLACE = "@@EXPLANATION@@"
# Enough for the graph and what stands beside it.
_HEIGHT = 720


def page(explained: ExplainedPlan) -> str:
    """The whole page."""
    return _template().replace(_PLACE, _in_script(document(explained)))


def embedded_page(explained: ExplainedPlan) -> str:
    """The page in a frame, for notebooks: its styles and ids stay its own, and it reaches nothing outside."""
    source = html.escape(page(explained), quote=True)
    return f'<iframe srcdoc="{source}" sandbox="allow-scripts" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'


def _in_script(value: dict[str, Any]) -> str:
    """JSON that may stand in a script element: nothing in it can end the element or begin a comment.

    >>> _in_script({"name": "</script>"})
    '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(value, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _template() -> str:
    return resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
