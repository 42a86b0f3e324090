"""Claims about the user's line in a stack trace."""

from __future__ import annotations

import torch
from joinsum.frontend.tracing.user_code import place_in

OWN = '  File "model.py", line 3, in forward\n    return torch.relu(x)\n'
TORCHS = f'  File "{torch.__path__[0]}/functional.py", line 7, in relu\n    return x\n'


def test_it_is_the_innermost_line_that_is_not_torchs() -> None:
    outer = '  File "main.py", line 1, in main\n    model(x)\n'
    assert place_in(outer + OWN + TORCHS) == ": at model.py:3 in forward, code=return torch.relu(x)"


def test_there_is_none_where_all_lines_are_torchs() -> None:
    assert place_in(TORCHS) == ""
    assert place_in("") == ""
