"""Contenders that are programs of their own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from frame.outside import Program, emulated, shared_folder
from network import DEVICE

ADDS = """
import numpy, pathlib, sys
folder = pathlib.Path(sys.argv[1])
total = numpy.zeros(3, "float32")
for line in sys.stdin:
    match line.strip():
        case "step": total = total + numpy.load(folder / "x.npy")
        case "save": numpy.save(folder / "result.npy", total)
        case "fail": raise SystemExit("failed")
    print("done", flush=True)
"""


def program(folder: Path) -> Program:
    return Program([sys.executable, "-c", ADDS], folder, {"x": torch.arange(3.0)}, torch.empty(3))


def test_each_step_is_done_by_the_program_and_its_result_comes_back(tmp_path: Path):
    contender = program(tmp_path).contender()
    contender.step()
    contender.step()
    (result,) = contender.result()
    assert result.tolist() == [0.0, 2.0, 4.0]


def test_a_program_that_ends_is_an_error(tmp_path: Path):
    with pytest.raises(RuntimeError, match="ended or failed"):
        program(tmp_path).tell("fail")


def test_folders_lie_in_that_of_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("JOINSUM_BENCH_FOLDER", str(tmp_path))
    assert shared_folder().parent == tmp_path


def test_ranks_know_an_emulated_network_by_their_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert not emulated()
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", DEVICE)
    assert emulated()
