"""The page of an explanation, in a browser: it draws the plan, opens nodes, shows who holds what, loads nothing."""

from __future__ import annotations

import importlib.util
import os
import re
from html import escape, unescape
from pathlib import Path
from types import ModuleType

import joinsum
import pytest
import torch

TOOLS = Path(__file__).parents[3] / "tools"
PLAN = """ia on 2x2
input X: f32[8,8]<4,4> (0, 0)
input W: f32[8,8]<4,4> (0, *)
a = shuffle[(1, *)](X)
b = shuffle[(0, 1)](broadcast[0](W))
output Z = shuffle[(0, 0)](agg[0, 2; add](join[1; 0; matmul](a, b)))
"""


def browser_tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("browser", TOOLS / "browser.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


browser = browser_tools()
needs_browser = pytest.mark.skipif(browser.find() is None and not os.environ.get("JOINSUM_CI"), reason=browser.REMEDY)


def written(report: joinsum.Explanation, folder: Path, script: str = "") -> Path:
    """The page in a file, with `script` run after its own."""
    page = folder / "plan.html"
    page.write_text(report.to_html() + (f"<script>{script}</script>" if script else ""), encoding="utf-8")
    return page


def explained(text: str = PLAN, cluster: joinsum.Cluster | None = None) -> joinsum.Explanation:
    return joinsum.explain(joinsum.parse(text), cluster=cluster)


def held_cells(dom: str, when: str) -> list[set[int]]:
    """For each site, the columns that are marked in the grid before or after the move."""
    (table,) = re.findall(rf'data-grid="{when}">(.*?)</table>', dom)
    rows = [re.findall(r'<td class="(\w*)"', row) for row in table.split("</tr>")[:-1]]
    return [{i for i, state in enumerate(row) if state} for row in rows]


def opened(dom: str) -> str:
    (name,) = re.findall(r'data-open="(\w+)"', dom)
    return name


@needs_browser
def test_the_page_draws_every_node(tmp_path: Path) -> None:
    report = explained()
    dom = browser.rendered(written(report, tmp_path))
    assert re.findall(r'data-node="(\w+)"', dom) == [node.name for node in report.plan.nodes]
    assert len(re.findall(r'class="edge"', dom)) == sum(len(node.inputs) for node in report.plan.nodes)


@needs_browser
@pytest.mark.parametrize("name", ["t0", "t1", "t2"])
def test_the_address_opens_a_node_and_its_grids_are_the_placements(tmp_path: Path, name: str) -> None:
    report = explained()
    nodes = {node.name: node for node in report.plan.nodes}
    dom = browser.rendered(written(report, tmp_path), f"#node={name}")
    assert opened(dom) == name
    for when, type_ in (("before", nodes[nodes[name].inputs[0]].type), ("after", nodes[name].type)):
        keys = type_.relation.all_keys()
        wanted = [{i for i, key in enumerate(keys) if site in type_.sites_of(key)} for site in range(4)]
        assert held_cells(dom, when) == wanted


@needs_browser
def test_a_click_opens_a_node(tmp_path: Path) -> None:
    click = "document.querySelector('[data-node=W]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    dom = browser.rendered(written(explained(), tmp_path, click))
    assert opened(dom) == "W"
    (chosen,) = re.findall(r'class="node \w+ chosen" data-node="(\w+)"', dom)
    assert chosen == "W"


@needs_browser
def test_in_a_notebook_a_click_opens_a_node_too(tmp_path: Path) -> None:
    script = """<script>
      document.querySelector("a[href='#node=t1']").click();
      const open_node = document.querySelector("[data-open]").dataset.open;
      if (open_node !== "t1") throw new Error("opened: " + open_node);
    </script>"""
    frame = explained()._repr_html_().replace('" sandbox', f'{escape(script)}" sandbox')
    page = tmp_path / "notebook.html"
    page.write_text(f"<!doctype html><body>{frame}</body>", encoding="utf-8")
    browser.rendered(page)
    page.write_text(page.read_text().replace(escape('!== "t1"'), escape('!== "t0"')), encoding="utf-8")
    with pytest.raises(RuntimeError, match="opened: t1"):
        browser.rendered(page)


@needs_browser
def test_what_was_measured_stands_beside_what_was_predicted(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    x = joinsum.relation(torch.ones(8), parts=2, place=[0], name="X")
    report = x.aggregate(keep=[]).explain(minimize="wire_bytes", analyze=True)
    dom = browser.rendered(written(report, tmp_path), "#node=t1")
    assert "Measured on 2 sites of loopback, all in this process" in dom
    assert dom.count("<th>wrong by</th>") == 2


@needs_browser
def test_a_partial_result_is_marked_as_such(tmp_path: Path) -> None:
    plan = "ia on 2\ninput X: f32[4]<2> (0)\noutput Y = broadcast(agg[; add](X))"
    dom = browser.rendered(written(explained(plan), tmp_path), "#node=t1")
    before, after = (re.search(rf'data-grid="{when}">(.*?)</table>', dom) for when in ("before", "after"))
    assert before is not None
    assert after is not None
    assert 'class="partial"' in before[1]
    assert 'class="partial"' not in after[1]


@needs_browser
def test_names_are_text_whatever_they_hold(tmp_path: Path) -> None:
    name = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
    report = explained(cluster=joinsum.Cluster(name, bytes_per_second=1e9))
    assert name not in report.to_html()
    dom = browser.rendered(written(report, tmp_path))
    assert "<title>joinsum plan</title>" in dom
    assert name in unescape(dom)


@needs_browser
def test_two_hundred_nodes_on_64_sites_are_drawn_and_many_tuples_are_cut_short(tmp_path: Path) -> None:
    lines = ["ia on 2x2x2x2x2x2", "input X: f32[512,512]<64,64> (0, 0, 0, 1, 1, 1)", "t0 = shuffle[1](X)"]
    lines += [f"t{i} = {'shuffle[0]' if i % 3 == 0 else 'map[(k0, k1); relu]'}(t{i - 1})" for i in range(1, 200)]
    report = explained("\n".join([*lines, "output Y = t199"]))
    assert len(report.to_html()) < 8_000_000
    dom = browser.rendered(written(report, tmp_path), "#node=t0")
    assert len(re.findall(r"data-node=", dom)) == 201
    assert "64 of 4,096 tuples are shown" in dom
    assert len(held_cells(dom, "after")) == 64


def test_the_page_names_no_address_but_that_of_svg() -> None:
    addresses = set(re.findall(r"https?://[^\s\"'<>\\]+", explained().to_html()))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_a_notebook_gets_the_page_in_a_frame_of_its_own() -> None:
    report = explained()
    frame = report._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    (source,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert unescape(source) == report.to_html()
    assert 'sandbox="allow-scripts"' in frame
