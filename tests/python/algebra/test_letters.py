"""Claims about letters outside of ASCII in the texts of plans and graphs: comments may have them, and elsewhere an
error has their line and column."""

from __future__ import annotations

from collections.abc import Callable

import joinsum
import pytest

TRA, IA = "tra\ninput X: f32[4]<2>\n", "ia on 2\ninput X: f32[4]<2>: part[0]\n"
GRAPH = "einsum\ninput X: f32[4]\n"

REFUSED: list[tuple[Callable[[str], object], str, str]] = [
    (joinsum.parse, "tra\ninput Ä: f32[4]<2>\noutput Y = rekey[(1 - k0)](Ä)", "line=2, column=7"),
    (joinsum.parse, TRA + "output Y = rékey[(1 - k0)](X)", "line=3, column=12"),
    (joinsum.parse, TRA + "output Y = rekey[(1 - k0)](X) é", "line=3, column=31"),
    (joinsum.parse, "é", "a plan begins with"),
    (joinsum.Graph.parse, "einsum\ninput é: f32[4]\noutput Z = einsum[i->; id; add](é)", "line=2, column=7"),
    (joinsum.Graph.parse, GRAPH + "output Z = einsum[i->; 恒等; add](X)", "line=3, column=24"),
    (joinsum.Graph.parse, GRAPH + "output Z = einsum[i->; id; add](X) \U0001f600", "line=3, column=36"),
    (joinsum.Graph.parse, GRAPH + "output Z = einsum[é->; id; add](X)", "not a letter; .*labels=é->"),
]


@pytest.mark.parametrize(("parse", "text", "place"), REFUSED)
def test_other_letters_are_refused_with_their_place(parse: Callable[[str], object], text: str, place: str) -> None:
    with pytest.raises(joinsum.PlanError, match=rf"^parse: .*{place}"):
        parse(text)


def test_comments_may_have_other_letters() -> None:
    assert joinsum.parse(TRA + "output Y = rekey[(1 - k0)](X)  # Schlüssel, 键") == joinsum.parse(
        TRA + "output Y = rekey[(1 - k0)](X)"
    )
    assert joinsum.Graph.parse(GRAPH + "# é\noutput Z = einsum[i->; id; add](X)") == joinsum.Graph.parse(
        GRAPH + "output Z = einsum[i->; id; add](X)"
    )
