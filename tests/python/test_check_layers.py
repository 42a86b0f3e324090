"""The include rules of csrc/, each shown on a small tree that breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
CHECKER = PROJECT / "tools" / "check_layers.py"

# Headers that every tree below has, so that an include names a file that exists.
HEADERS = {
    f"{folder}/a.h": "#pragma once\n" for folder in ("base", "kernels", "ia", "tra", "einsum", "optimizer", "runtime")
}
HEADERS["kernels/dense.h"] = "#pragma once\n#include <ATen/ATen.h>\n"


def check(tmp_path: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    """Runs the checker on a tree of HEADERS and `files`; returns its status and all lines but the last."""
    for name, text in {**HEADERS, **files}.items():
        path = tmp_path / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    result = subprocess.run([sys.executable, str(CHECKER), str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()[:-1]


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("base/x.cpp", '"base/a.h"'),
        ("kernels/x.cpp", '"base/a.h"'),
        ("kernels/dense_x.cpp", '"kernels/dense.h"'),
        ("kernels/dense_x.cpp", "<ATen/ATen.h>"),
        ("kernels/sparse/x.cpp", "<torch/torch.h>"),
        ("kernels/cuda_contract.cpp", "<cuda_runtime.h>"),
        ("ia/x.cpp", '"kernels/a.h"'),
        ("tra/x.cpp", '"ia/a.h"'),
        ("einsum/x.cpp", '"tra/a.h"'),
        ("einsum/x.cpp", "<vector>"),
        ("einsum/json.cpp", "<nlohmann/json.hpp>"),
        ("einsum/json_write.cpp", "<nlohmann/json.hpp>"),
        ("optimizer/rules/x.cpp", '"einsum/a.h"'),
        ("optimizer/cost/x.cpp", '"optimizer/a.h"'),
        ("runtime/x.cpp", '"einsum/a.h"'),
        ("runtime/x.cpp", '"kernels/dense.h"'),
        ("runtime/x.cpp", "<c10/core/Device.h>"),
        ("bindings/x.cpp", '"optimizer/a.h"'),
        ("bindings/x.cpp", '"runtime/a.h"'),
        ("bindings/x.cpp", "<pybind11/pybind11.h>"),
    ],
)
def test_an_include_along_the_layers_is_allowed(tmp_path: Path, file: str, include: str) -> None:
    assert check(tmp_path, {file: f"#include {include}\n"}) == (0, [])


@pytest.mark.parametrize(
    ("file", "include", "reason"),
    [
        ("base/x.cpp", '"kernels/a.h"', "base must not include kernels"),
        ("kernels/x.cpp", '"ia/a.h"', "kernels must not include ia"),
        ("ia/x.h", '"tra/a.h"', "ia must not include tra"),
        ("ia/x.cpp", '"optimizer/a.h"', "ia must not include optimizer"),
        ("tra/x.cpp", '"einsum/a.h"', "tra must not include einsum"),
        ("einsum/x.cpp", '"runtime/a.h"', "einsum must not include runtime"),
        ("optimizer/rules/x.cpp", '"runtime/a.h"', "optimizer must not include runtime"),
        ("runtime/x.cpp", '"optimizer/a.h"', "runtime must not include optimizer"),
        ("ia/x.cpp", "<torch/torch.h>", "allowed only in kernels/dense*"),
        ("kernels/table.cpp", "<ATen/ATen.h>", "allowed only in kernels/dense*"),
        ("optimizer/x.cpp", "<c10/util/Exception.h>", "allowed only in kernels/dense*"),
        ("kernels/table.cpp", '"kernels/dense.h"', "leads to torch: kernels/dense.h -> <ATen/ATen.h>"),
        ("runtime/x.cpp", "<pybind11/pybind11.h>", "allowed only in bindings/"),
        ("runtime/x.cpp", "<Python.h>", "allowed only in bindings/"),
        ("runtime/x.cpp", "<cuda_runtime.h>", "allowed only in files named cuda*"),
        ("ia/x.cpp", "<base/a.h>", 'joinsum\'s headers are included with ""'),
        ("ia/x.cpp", "<joinsum/base/a.h>", 'joinsum\'s headers are included with ""'),
        ("runtime/x.cpp", '"torch/torch.h"', "another project's header is included with <>"),
        ("ia/x.cpp", '"a.h"', "named from csrc/"),
        ("ia/x.cpp", '"../base/a.h"', "named from csrc/"),
        ("ia/x.cpp", '"boost/any.hpp"', "named from csrc/"),
        ("ia/x.cpp", '"base/missing.h"', "no such file in csrc/"),
        ("ia/x.cpp", "<boost/any.hpp>", "no rule allows"),
        ("einsum/json.h", "<nlohmann/json.hpp>", "allowed only in einsum/json*.cpp"),
        ("einsum/text.cpp", "<nlohmann/json.hpp>", "allowed only in einsum/json*.cpp"),
        ("ia/x.cpp", "SOME_MACRO", "must name its file"),
        ("algebra/x.cpp", '"base/a.h"', "no folder of the layout"),
    ],
)
def test_a_breach_is_reported_with_its_file_and_line(tmp_path: Path, file: str, include: str, reason: str) -> None:
    status, lines = check(tmp_path, {file: f"// first line\n\n#include {include}\n"})
    assert status == 1
    assert len(lines) == 1
    assert lines[0].startswith(f"csrc/{file}:3: ")
    assert reason in lines[0]


def test_every_breach_of_a_file_is_reported(tmp_path: Path) -> None:
    status, lines = check(tmp_path, {"base/x.cpp": '#include "ia/a.h"\n#include <vector>\n#include <torch/torch.h>\n'})
    assert status == 1
    assert [line.split(": ")[0] for line in lines] == ["csrc/base/x.cpp:1", "csrc/base/x.cpp:3"]


def test_torch_is_found_behind_other_headers(tmp_path: Path) -> None:
    status, lines = check(
        tmp_path, {"kernels/b.h": '#pragma once\n#include "kernels/dense.h"\n', "ia/x.cpp": '#include "kernels/b.h"\n'}
    )
    assert status == 1
    assert "kernels/b.h -> kernels/dense.h -> <ATen/ATen.h>" in lines[0]


def test_an_include_in_a_comment_does_not_count(tmp_path: Path) -> None:
    text = '/* as in\n#include <torch/torch.h>\n*/\n// #include "ia/a.h"\n#include "base/a.h"\n'
    assert check(tmp_path, {"base/x.cpp": text}) == (0, [])


def test_the_project_keeps_its_own_rules() -> None:
    result = subprocess.run([sys.executable, str(CHECKER)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
