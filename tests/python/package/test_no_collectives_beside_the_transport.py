"""Tensor data moves between processes through the context's transport, which watches for lost peers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import joinsum
import pytest

PACKAGE = Path(joinsum.__file__).parent

# What a file may use of torch.distributed, and why: none of it moves tensor data of ours.
ALLOWED = {
    "cluster/context.py": (
        {
            "is_available",
            "is_initialized",
            "is_nccl_available",
            "init_process_group",
            "destroy_process_group",
            "new_group",
            "get_process_group_ranks",
            "distributed_c10d",
            "get_rank",
            "get_backend_config",
            "group",
            "GroupMember",
            "ProcessGroup",
            "PrefixStore",
            "rendezvous",
        },
        "sets up the process group that the transport runs on",
    ),
    "cli/doctor.py": (
        {"is_available", "is_gloo_available", "is_nccl_available"},
        "reports which backends this torch has",
    ),
    "distributed/dtensor.py": (
        {"get_process_group_ranks", "device_mesh", "tensor"},
        "DTensor's types: DTensor moves its data itself",
    ),
    "distributed/checkpoint.py": (
        {"checkpoint", "DistError"},
        "DCP writes and reads files, and moves its own metadata; its errors",
    ),
    "distributed/checkpoint_files.py": ({"checkpoint"}, "DCP's reader of files, checked"),
    "distributed/dcp_blocks.py": ({"checkpoint"}, "the types in which DCP asks for blocks"),
    "distributed/safetensors.py": ({"checkpoint"}, "the types in which DCP asks for blocks"),
}


def uses(source: str) -> Iterator[str]:
    """The names below torch.distributed that a module uses: `all_reduce` of `dist.all_reduce(x)`."""
    tree = ast.parse(source)
    aliases = {"torch.distributed"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                if name.name == "torch.distributed" and name.asname:
                    aliases.add(name.asname)
                elif name.name.startswith("torch.distributed."):
                    yield name.name.split(".")[2]
                elif name.name.startswith("torch._C._distributed"):
                    yield name.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "torch":
                aliases |= {name.asname or name.name for name in node.names if name.name == "distributed"}
            elif node.module == "torch.distributed":
                yield from (name.name for name in node.names)
            elif node.module.startswith("torch.distributed."):
                yield node.module.split(".")[2]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in aliases:
            yield node.attr
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "torch.ops" and "c10d" in node.attr:
            yield f"torch.ops.{node.attr}"


def test_only_listed_names_of_torch_distributed_are_used() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): set(uses(path.read_text(encoding="utf-8")))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    beyond = {name: used - ALLOWED.get(name, (set(), ""))[0] for name, used in found.items()}
    assert {name: names for name, names in beyond.items() if names} == {}
    unused = {name: names - found.get(name, set()) for name, (names, _) in ALLOWED.items()}
    assert {name: names for name, names in unused.items() if names} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import torch.distributed as dist\ndist.all_reduce(x)",
        "import torch\ntorch.distributed.all_reduce(x)",
        "from torch import distributed\ndistributed.all_reduce(x)",
        "from torch.distributed import all_reduce",
        "def f():\n    import torch.distributed\n    torch.distributed.all_reduce(x)",
    ],
)
def test_a_collective_of_torch_distributed_is_found(source: str) -> None:
    assert "all_reduce" in set(uses(source))


@pytest.mark.parametrize(
    "source",
    ["import torch.distributed._functional_collectives as funcol", "torch.ops._c10d_functional.all_reduce(x)"],
)
def test_functional_collectives_are_found(source: str) -> None:
    assert set(uses(source))
