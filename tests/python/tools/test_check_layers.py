"""The laws of the rooms, each shown on a small tree that breaks it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
CHECKER = PROJECT / "tools" / "check_layers.py"

CPP_FOLDERS = (
    "base",
    "kernels/table",
    "kernels/dense",
    "relation",
    "ia",
    "ia/transforms",
    "tra",
    "einsum",
    "optimizer",
    "runtime/storage",
    "runtime/execution",
)
# Headers and modules that every tree below has, so that what is reached exists.
FILES = {f"csrc/{folder}/a.h": "#pragma once\n" for folder in CPP_FOLDERS}
FILES["csrc/kernels/dense/dense.h"] = "#pragma once\n#include <ATen/ATen.h>\n"
ROOMS = ("base", "cluster", "algebra", "planner", "execution", "frontend", "explanation", "extreme", "cli")
FILES |= {f"python/joinsum/{room}/__init__.py": '"""A room."""\n' for room in ROOMS}
FILES |= {f"python/joinsum/{room}/a.py": "def f(): ...\ndef _g(): ...\n" for room in ROOMS}
FILES["python/joinsum/__init__.py"] = "from joinsum import _C\nfrom joinsum.base.a import f\n"
FILES["python/joinsum/_C.pyi"] = ""


def check(tmp_path: Path, files: dict[str, str]) -> tuple[int, list[str]]:
    """Runs the checker on a tree of FILES and `files`; returns its status and all lines but the last."""
    for name, text in {**FILES, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    result = subprocess.run([sys.executable, str(CHECKER), str(tmp_path)], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()[:-1]


def the_one_breach(tmp_path: Path, files: dict[str, str]) -> str:
    _, lines = check(tmp_path, files)
    assert len(lines) == 1, lines
    return lines[0]


# --- C++: includes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("base/x.cpp", '"base/a.h"'),
        ("kernels/table/x.cpp", '"base/a.h"'),
        ("kernels/dense/x.cpp", '"kernels/dense/dense.h"'),
        ("kernels/dense/x.cpp", "<ATen/ATen.h>"),
        ("kernels/dense/x.cpp", '"kernels/table/a.h"'),
        ("kernels/dense/cuda_contract.cpp", "<cuda_runtime.h>"),
        ("relation/x.cpp", '"kernels/table/a.h"'),
        ("ia/x.cpp", '"relation/a.h"'),
        ("ia/transforms/x.cpp", '"ia/a.h"'),
        ("tra/x.cpp", '"ia/a.h"'),
        ("einsum/x.cpp", '"tra/a.h"'),
        ("einsum/x.cpp", "<vector>"),
        ("einsum/json/json.cpp", "<nlohmann/json.hpp>"),
        ("optimizer/x.cpp", '"einsum/a.h"'),
        ("runtime/execution/x.cpp", '"einsum/a.h"'),
        ("runtime/execution/x.cpp", '"runtime/storage/a.h"'),
        ("runtime/storage/x.cpp", '"kernels/dense/dense.h"'),
        ("runtime/storage/x.cpp", "<c10/core/Device.h>"),
        ("bindings/x.cpp", '"optimizer/a.h"'),
        ("bindings/x.cpp", '"runtime/execution/a.h"'),
        ("bindings/x.cpp", "<pybind11/pybind11.h>"),
    ],
)
def test_an_include_along_the_floors_is_allowed(tmp_path: Path, file: str, include: str) -> None:
    assert check(tmp_path, {f"csrc/{file}": f"#include {include}\n"}) == (0, [])


@pytest.mark.parametrize(
    ("file", "include", "reason"),
    [
        ("base/x.cpp", '"kernels/table/a.h"', "base must not reach kernels/table, a higher floor"),
        ("kernels/table/x.cpp", '"kernels/dense/a.h"', "kernels/table must not reach kernels/dense, a higher floor"),
        ("kernels/dense/x.cpp", '"relation/a.h"', "kernels/dense must not reach relation, a higher floor"),
        ("relation/x.cpp", '"ia/a.h"', "relation must not reach ia, a higher floor"),
        ("ia/x.h", '"tra/a.h"', "ia must not reach tra, a higher floor"),
        ("ia/x.h", '"ia/transforms/a.h"', "ia must not reach ia/transforms, a higher floor"),
        ("ia/x.cpp", '"optimizer/a.h"', "ia must not reach optimizer, a higher floor"),
        ("tra/x.cpp", '"einsum/a.h"', "tra must not reach einsum, a higher floor"),
        ("einsum/x.cpp", '"runtime/storage/a.h"', "einsum must not reach runtime/storage, a higher floor"),
        ("optimizer/x.cpp", '"runtime/storage/a.h"', "optimizer must not reach runtime/storage"),
        ("runtime/storage/x.cpp", '"optimizer/a.h"', "neither of runtime and optimizer knows the other"),
        ("runtime/storage/x.cpp", '"runtime/execution/a.h"', "runtime/storage must not reach runtime/execution"),
        ("ia/x.cpp", "<torch/torch.h>", "allowed only in kernels/"),
        ("kernels/table/x.cpp", "<ATen/ATen.h>", "allowed only in kernels/"),
        ("optimizer/x.cpp", "<c10/util/Exception.h>", "allowed only in kernels/"),
        ("ia/x.cpp", '"kernels/dense/dense.h"', "leads to torch: kernels/dense/dense.h -> <ATen/ATen.h>"),
        ("runtime/storage/x.cpp", "<pybind11/pybind11.h>", "allowed only in bindings"),
        ("runtime/storage/x.cpp", "<Python.h>", "allowed only in bindings"),
        ("runtime/storage/x.cpp", "<cuda_runtime.h>", "allowed only in files named cuda*"),
        ("ia/cuda_x.cpp", "<cuda_runtime.h>", "allowed only in files named cuda*"),
        ("ia/x.cpp", "<base/a.h>", 'joinsum\'s headers are included with ""'),
        ("ia/x.cpp", "<joinsum/base/a.h>", 'joinsum\'s headers are included with ""'),
        ("runtime/storage/x.cpp", '"torch/torch.h"', "another project's header is included with <>"),
        ("ia/x.cpp", '"a.h"', "named from csrc/"),
        ("ia/x.cpp", '"../base/a.h"', "named from csrc/"),
        ("ia/x.cpp", '"boost/any.hpp"', "named from csrc/"),
        ("ia/x.cpp", '"base/missing.h"', "no such file in csrc/"),
        ("ia/x.cpp", "<boost/any.hpp>", "no rule allows"),
        ("einsum/json/json.h", "<nlohmann/json.hpp>", "allowed only in .cpp files of einsum/json"),
        ("einsum/text.cpp", "<nlohmann/json.hpp>", "allowed only in .cpp files of einsum/json"),
        ("ia/x.cpp", "SOME_MACRO", "must name its file"),
    ],
)
def test_a_wrong_include_is_reported_with_its_file_and_line(
    tmp_path: Path, file: str, include: str, reason: str
) -> None:
    found = the_one_breach(tmp_path, {f"csrc/{file}": f"// first line\n\n#include {include}\n"})
    assert found.startswith(f"csrc/{file}:3: ")
    assert reason in found


def test_a_folder_without_a_floor_is_reported(tmp_path: Path) -> None:
    assert "csrc/algebra has no floor" in the_one_breach(tmp_path, {"csrc/algebra/x.cpp": "int x;\n"})


def test_every_breach_of_a_file_is_reported(tmp_path: Path) -> None:
    text = '#include "ia/a.h"\n#include <vector>\n#include <torch/torch.h>\n'
    status, lines = check(tmp_path, {"csrc/base/x.cpp": text})
    assert status == 1
    assert [line.split(": ")[0] for line in lines] == ["csrc/base/x.cpp:1", "csrc/base/x.cpp:3"]


def test_torch_is_found_behind_other_headers(tmp_path: Path) -> None:
    files = {
        "csrc/kernels/dense/b.h": '#pragma once\n#include "kernels/dense/dense.h"\n',
        "csrc/ia/x.cpp": '#include "kernels/dense/b.h"\n',
    }
    assert "kernels/dense/b.h -> kernels/dense/dense.h -> <ATen/ATen.h>" in the_one_breach(tmp_path, files)


def test_an_include_in_a_comment_does_not_count(tmp_path: Path) -> None:
    text = '/* as in\n#include <torch/torch.h>\n*/\n// #include "ia/a.h"\n#include "base/a.h"\n'
    assert check(tmp_path, {"csrc/base/x.cpp": text}) == (0, [])


# --- C++: namespaces --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("base/x.h", "namespace joinsum {\n}\n"),
        ("ia/x.h", "namespace joinsum::ia {\n}\n"),
        ("ia/transforms/x.cpp", "namespace joinsum::ia::transforms {\nnamespace {\n}\nnamespace detail {\n}\n}\n"),
        ("bindings/x.cpp", "namespace joinsum::bindings {\nnamespace py = pybind11;\n}\n"),
    ],
)
def test_the_namespace_of_the_folder_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    assert check(tmp_path, {f"csrc/{file}": text}) == (0, [])


@pytest.mark.parametrize(
    ("file", "name", "wanted"),
    [
        ("base/x.h", "joinsum::base", "joinsum"),
        ("ia/transforms/x.h", "joinsum::ia", "joinsum::ia::transforms"),
        ("ia/x.h", "joinsum", "joinsum::ia"),
        ("relation/x.h", "joinsum::relation::keys", "joinsum::relation"),
        ("tra/x.h", "helpers", "joinsum::tra"),
    ],
)
def test_another_namespace_is_reported(tmp_path: Path, file: str, name: str, wanted: str) -> None:
    found = the_one_breach(tmp_path, {f"csrc/{file}": f"#pragma once\nnamespace {name} {{\n}}\n"})
    assert found == f"csrc/{file}:2: namespace {name} is not the folder's, {wanted}"


# --- C++: circles -----------------------------------------------------------------------------------------------------


def test_a_circle_of_headers_is_reported(tmp_path: Path) -> None:
    files = {
        "csrc/ia/b.h": '#include "ia/c.h"\n',
        "csrc/ia/c.h": '#include "base/a.h"\n#include "ia/d.h"\n',
        "csrc/ia/d.h": '#include "ia/b.h"\n',
    }
    assert the_one_breach(tmp_path, files) == (
        "csrc/ia/b.h:1: a circle of files: csrc/ia/b.h -> csrc/ia/c.h -> csrc/ia/d.h -> csrc/ia/b.h"
    )


def test_the_shortest_circle_of_folders_is_reported(tmp_path: Path) -> None:
    files = {
        "csrc/ia/x.cpp": '#include "relation/a.h"\n',
        "csrc/relation/x.cpp": '#include "ia/a.h"\n#include "base/a.h"\n',
        "csrc/base/x.cpp": '#include "ia/a.h"\n',
        "csrc/ia/y.cpp": '#include "base/a.h"\n',
    }
    status, lines = check(tmp_path, files)
    assert status == 1
    assert lines[-1] == "csrc/base/x.cpp:1: a circle of folders: base -> ia -> base"
    assert sum("circle" in line for line in lines) == 1


# --- Python: imports --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("execution/x.py", "from joinsum.base.a import f\n"),
        ("execution/x.py", "from joinsum import _C\nfrom joinsum._C import Grid\n"),
        ("execution/x.py", "from joinsum.planner import a\na.f()\n"),
        ("execution/x.py", "from joinsum.execution.a import _g\n"),
        ("execution/x.py", '"""As `joinsum.explanation.a` does."""\n'),
        ("execution/x.py", "NAME = 'joinsum.seed'\n"),
        ("execution/x.py", "import importlib\nimportlib.import_module('joinsum.base.a')\n"),
        ("extreme/x.py", "import joinsum\njoinsum.f()\n"),
        ("cli/x.py", "import joinsum\nfrom joinsum.cluster.a import f\nfrom joinsum.extreme.a import f as g\n"),
        ("__init__.py", "from joinsum.explanation.a import f\n"),
    ],
)
def test_an_import_along_the_floors_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    assert check(tmp_path, {f"python/joinsum/{file}": text}) == (0, [])


UPWARDS = "execution must not reach explanation, a higher floor: joinsum.explanation"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from joinsum.explanation.a import f\n", 1),
        ("import joinsum.explanation.a\n", 1),
        ("from joinsum.explanation import a\n", 1),
        ("from joinsum import explanation\n", 1),
        ("from ..explanation import a\n", 1),
        ("def g():\n    from joinsum.explanation.a import f\n", 2),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from joinsum.explanation.a import f\n", 3),
        ("import importlib\nimportlib.import_module('joinsum.explanation.a')\n", 2),
        ("from importlib import import_module\nimport_module('joinsum.explanation')\n", 2),
        ("__import__('joinsum.explanation.a')\n", 1),
        ("import sys\nsys.modules['joinsum.explanation.a'].f()\n", 2),
        ("TARGET = 'joinsum.explanation.a.f'\n", 1),
    ],
)
def test_an_upward_import_is_reported_in_every_form(tmp_path: Path, text: str, line: int) -> None:
    found = the_one_breach(tmp_path, {"python/joinsum/execution/x.py": text})
    assert found.startswith(f"python/joinsum/execution/x.py:{line}: {UPWARDS}")


@pytest.mark.parametrize(
    "text",
    [
        "import joinsum\n",
        "from joinsum import f\n",
        "def g():\n    import joinsum\n",
        "import importlib\nimportlib.import_module('joinsum')\n",
        "__import__('joinsum')\n",
        "import sys\nsys.modules['joinsum']\n",
        "import sys\nsys.modules.get('joinsum')\n",
    ],
)
def test_a_room_does_not_import_the_root(tmp_path: Path, text: str) -> None:
    found = the_one_breach(tmp_path, {"python/joinsum/execution/x.py": text})
    assert "execution must not reach joinsum, a higher floor: joinsum" in found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from joinsum.base.a import _g\n", "_g is private to base"),
        ("from joinsum.base import a\na._g()\n", "_g is private to base"),
        ("import joinsum.base.a as names\nnames._g()\n", "_g is private to base"),
        ("from joinsum.base._hidden import f\n", "_hidden is private to base"),
    ],
)
def test_a_private_name_of_another_room_is_reported(tmp_path: Path, text: str, reason: str) -> None:
    files = {"python/joinsum/execution/x.py": text, "python/joinsum/base/_hidden.py": "def f(): ...\n"}
    assert reason in the_one_breach(tmp_path, files)


def test_the_extreme_classifier_reaches_public_names_only(tmp_path: Path) -> None:
    found = the_one_breach(tmp_path, {"python/joinsum/extreme/x.py": "from joinsum.base.a import f\n"})
    assert found.endswith("extreme must not reach base (allowed: joinsum): joinsum.base.a")


def test_a_module_name_that_is_composed_is_reported(tmp_path: Path) -> None:
    text = "import importlib\ndef g(name):\n    return importlib.import_module(f'joinsum.{name}')\n"
    found = the_one_breach(tmp_path, {"python/joinsum/execution/x.py": text})
    assert found.startswith("python/joinsum/execution/x.py:3: a module's name is written whole")


def test_a_module_that_is_in_no_room_is_reported(tmp_path: Path) -> None:
    status, lines = check(tmp_path, {"python/joinsum/planning.py": "X = 1\n"})
    assert status == 1
    assert lines[0] == "python/joinsum/planning.py:1: a module lies in a room, not flat in python/joinsum: planning.py"


def test_a_room_without_a_floor_is_reported(tmp_path: Path) -> None:
    found = the_one_breach(tmp_path, {"python/joinsum/tricks/a.py": "X = 1\n"})
    assert "python/joinsum/tricks has no floor" in found


# --- Python: circles --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "back",
    [
        "from joinsum.execution.b import f\n",
        "def g():\n    from joinsum.execution import b\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from joinsum.execution.b import f\n",
    ],
)
def test_a_circle_of_modules_in_a_room_is_reported(tmp_path: Path, back: str) -> None:
    files = {
        "python/joinsum/execution/b.py": "from joinsum.execution.c import g\ndef f(): ...\n",
        "python/joinsum/execution/c.py": back,
    }
    circle = " -> ".join(f"python/joinsum/execution/{name}.py" for name in "bcb")
    assert the_one_breach(tmp_path, files) == f"python/joinsum/execution/b.py:1: a circle of files: {circle}"


def test_a_circle_of_rooms_is_reported(tmp_path: Path) -> None:
    files = {
        "python/joinsum/planner/x.py": "from joinsum.execution.a import f\n",
        "python/joinsum/execution/x.py": "from joinsum.planner.a import f\n",
    }
    status, lines = check(tmp_path, files)
    assert status == 1
    assert "planner must not reach execution, a higher floor" in lines[0]
    assert lines[1] == "python/joinsum/execution/x.py:1: a circle of folders: execution -> planner -> execution"


# --- the project ------------------------------------------------------------------------------------------------------


def test_the_project_keeps_its_own_laws() -> None:
    result = subprocess.run([sys.executable, str(CHECKER)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
