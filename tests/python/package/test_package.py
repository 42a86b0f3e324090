"""The package as a user gets it: built from the source distribution, installed beside torch, used from elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
SITE_PACKAGES = Path(sysconfig.get_path("platlib"))

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Installed:
    """A virtual environment that holds joinsum's wheel and borrows the rest from the environment of the tests."""

    python: Path
    package: Path


def run(command: Sequence[object], folder: Path, **variables: str) -> str:
    """Runs `command` in `folder` without the tests' Python path; returns its output, or fails with it."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    result = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**inherited, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout[-6000:]}"
    return result.stdout


@pytest.fixture(scope="session")
def source_distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", folder, PROJECT], folder)
    (archive,) = folder.glob("joinsum-*.tar.gz")
    return archive


@pytest.fixture(scope="session")
def wheel(source_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked source distribution, so from nothing else of the project's folder."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(source_distribution) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.glob("joinsum-*/")
    # Flags, depth of the build folder and path of torch are those of `make build`: ccache, if present, has all objects.
    (source / ".venv").symlink_to(sys.prefix)
    torch = source / ".venv" / SITE_PACKAGES.relative_to(sys.prefix) / "torch"
    settings = [f"build-dir={source}/build/package", "cmake.define.JOINSUM_WERROR=ON"]
    settings.append(f"cmake.define.JOINSUM_TORCH_ROOT={torch}")
    options = [f"--config-settings={setting}" for setting in settings]
    pip_wheel = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder]
    run([*pip_wheel, *options, source], folder)
    (built,) = folder.glob("joinsum-*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], folder).strip())
    # Entries of a .pth file come after the environment's own folder, and their .pth files (an editable joinsum) do
    # not count. The link puts torch where an install would, beside joinsum.
    (site / "borrowed.pth").write_text(f"{SITE_PACKAGES}\n", encoding="utf-8")
    (site / "torch").symlink_to(SITE_PACKAGES / "torch")
    run([sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel], folder)
    return Installed(python, site / "joinsum")


def test_the_source_distribution_holds_sources_and_no_outputs(source_distribution: Path) -> None:
    with tarfile.open(source_distribution) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "CMakeLists.txt",
        "LICENSE",
        "README.md",
        "pyproject.toml",
        "csrc/base/dims.h",
        "third_party/nlohmann/json.hpp",
        "third_party/nlohmann/LICENSE.MIT",
        "cmake/joinsumConfig.cmake.in",
    } <= names
    folders = {name.split("/", 1)[0] for name in names}
    assert {"csrc", "python", "tests", "tools", "examples"} <= folders
    assert not folders & {"build", "data", ".venv", ".git", ".ci"}
    assert not [name for name in names if name.endswith((".so", ".o", ".pyc"))]


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {
        "joinsum/__init__.py",
        "joinsum/py.typed",
        "joinsum/explanation/page.html",
        "joinsum/explanation/schema.json",
        "joinsum/_built_with.py",
        "joinsum/lib/libjoinsum.so",
        "joinsum/include/joinsum/base/dims.h",
        "joinsum/share/cmake/joinsum/joinsumConfig.cmake",
    } <= names
    assert {name.split("/", 1)[0].split("-")[0] for name in names} == {"joinsum"}
    licences = {name.split("/licenses/", 1)[1] for name in names if "/licenses/" in name}
    assert licences == {"LICENSE", "third_party/nlohmann/LICENSE.MIT"}
    assert not [name for name in names if name.endswith(".hpp")]
    assert not [name for name in names if name.endswith((".cpp", ".pyc")) or "/bindings/" in name]


def test_an_installed_joinsum_joins_from_another_folder(installed: Installed, tmp_path: Path) -> None:
    program = """
import joinsum, torch
joinsum.init(sites=4)
x = torch.arange(24.0).reshape(4, 6)
y = torch.arange(48.0).reshape(6, 8)
left, right = joinsum.relation(x, parts=(2, 3)), joinsum.relation(y, parts=(3, 2))
product = left.join(right, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2], kernel="add")
assert torch.equal(product.to_tensor(), x @ y)
print(joinsum.__file__)
"""
    output = run([installed.python, "-c", program], tmp_path)
    assert Path(output.strip().splitlines()[-1]).parent == installed.package


def test_an_installed_joinsum_trains_as_the_readme_says_without_a_compiler(
    installed: Installed, tmp_path: Path
) -> None:
    readme = (PROJECT / "README.md").read_text(encoding="utf-8")
    lines = readme.split("## What you add to a script\n\n```python\n")[1].split("```")[0]
    assert "joinsum.init()" in lines
    assert "step = joinsum.train_step(" in lines
    program = f"""
import copy, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
plain = copy.deepcopy(model)
batches = [(torch.randn(12, 8), torch.randint(3, (12,)))] * 4
{lines.replace("joinsum.init()", "joinsum.init(sites=2)")}
optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
for inputs, target in batches:
    wanted = torch.nn.functional.cross_entropy(plain(inputs), target)
    optimizer.zero_grad()
    wanted.backward()
    optimizer.step()
torch.testing.assert_close(loss.detach(), wanted.detach())
print(model(batches[0][0]).shape)
"""
    alone = {"PATH": str(installed.python.parent), "HOME": str(tmp_path), "CC": "/none", "CXX": "/none"}
    assert run([installed.python, "-c", program], tmp_path, **alone).strip().endswith("torch.Size([12, 3])")


def test_the_console_command_answers(installed: Installed, tmp_path: Path) -> None:
    assert "train" in run([installed.python.parent / "joinsum", "--help"], tmp_path)
    (tmp_path / "plan.tra").write_text("tra\ninput X: f32[4]<2>\noutput Y = aggregate[; add](X)")
    run([installed.python.parent / "joinsum", "plan", "plan.tra", "--sites", "2", "--html", "plan.html"], tmp_path)
    assert '"format": "joinsum explanation"' in (tmp_path / "plan.html").read_text()


def test_import_loads_nothing_that_takes_long_beyond_torch(installed: Installed, tmp_path: Path) -> None:
    program = "import sys, torch; before = set(sys.modules); import joinsum; print(*(set(sys.modules) - before))"
    modules = run([installed.python, "-c", program], tmp_path).split()
    assert {name.partition(".")[0] for name in modules} - set(sys.stdlib_module_names) == {"joinsum"}
    rooms = {name.split(".")[1] for name in modules if name.startswith("joinsum.")}
    assert rooms.isdisjoint({"capture", "distributed", "explanation", "extreme", "frontend"})


def cmake_program(installed: Installed, source: Path, build: Path, target: str) -> str:
    """Builds the CMake project in `source` against the installed package, runs its program, and returns its output."""
    run(["cmake", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={installed.package}"], build.parent)
    run(["cmake", "--build", build], build.parent)
    return run([build / target], build.parent)


needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


@needs_cmake
def test_the_cpp_example_builds_against_the_installed_package(installed: Installed, tmp_path: Path) -> None:
    output = cmake_program(installed, PROJECT / "examples" / "cpp", tmp_path / "build", "matmul")
    assert output.splitlines()[-1] == "equal to torch: yes"


@needs_cmake
def test_every_installed_header_can_be_included(installed: Installed, tmp_path: Path) -> None:
    include = installed.package / "include"
    headers = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.h"))
    assert "joinsum/base/dims.h" in headers
    lines = [f"#include <{header}>" for header in headers]
    lines += ["#include <iostream>", "int main() { std::cout << joinsum::all_dims(3).size(); }"]
    (tmp_path / "main.cpp").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES CXX)\nfind_package(joinsum 0.1 REQUIRED)\n"
        "add_executable(user main.cpp)\ntarget_link_libraries(user PRIVATE joinsum::joinsum)\n",
        encoding="utf-8",
    )
    assert cmake_program(installed, tmp_path, tmp_path / "build", "user") == "3"


@needs_cmake
def test_a_cpp_user_reads_a_graph_in_json_lowers_it_and_writes_it_back(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "main.cpp").write_text(
        """#include <fstream>
#include <iostream>
#include <sstream>

#include <joinsum/einsum/json/json.h>
#include <joinsum/einsum/lower.h>

using namespace joinsum;

int main() {
  std::ifstream file(GRAPH);
  std::stringstream text;
  text << file.rdbuf();
  const einsum::json::JsonGraph graph = einsum::json::read(text.str());
  const einsum::Plan plan = einsum::json::plan_of(graph);
  const tra::Plan program = einsum::lower(plan, einsum::even_cuts(plan, 4));
  if (einsum::json::read(einsum::json::write(graph)) != graph) return 1;
  try {
    einsum::json::read("[]");
  } catch (const PlanError& error) {
    std::cout << error.what() << "\\n";
  }
  std::cout << plan.outputs()[0].node->type().text() << ", " << program.outputs()[0].node->type().text();
}
""",
        encoding="utf-8",
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES CXX)\nfind_package(joinsum 0.1 REQUIRED)\n"
        "add_executable(user main.cpp)\ntarget_link_libraries(user PRIVATE joinsum::joinsum)\n"
        f'target_compile_definitions(user PRIVATE GRAPH="{PROJECT / "tests" / "plans" / "product.json"}")\n',
        encoding="utf-8",
    )
    output = cmake_program(installed, tmp_path, tmp_path / "build", "user")
    assert output == "json: not an object: at=$, got=[]\nf32[8,8], f32[8,8]<4,4>"


@needs_cmake
def test_without_torch_the_cmake_package_names_the_remedy(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(user LANGUAGES CXX)\nfind_package(joinsum REQUIRED)\n",
        encoding="utf-8",
    )
    alone = tmp_path / "alone" / "joinsum"
    shutil.copytree(installed.package, alone)
    command = ["cmake", "-S", str(tmp_path), "-B", str(tmp_path / "build"), f"-DCMAKE_PREFIX_PATH={alone}"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "torch.utils.cmake_prefix_path" in result.stderr
