"""Checkpoints are written on any number of sites and read on any other; they are complete at any time."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joinsum
import pytest
import torch
import torch.distributed.checkpoint as dcp
from joinsum import DistributedTensor
from joinsum.base.errors import CheckpointError
from joinsum.distributed import safetensors
from joinsum.distributed.distributed_tensor import gathered, replace_tensor
from models import CASES, batches, new_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from training import CUTTING, EVERYTHING, cut_type, divided

SITES = [1, 2, 3, 4, 8]


@pytest.fixture(autouse=True)
def one_site() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


def on_sites(model: nn.Module, sites: int) -> nn.Module:
    joinsum.init(sites=sites)
    for tensor in {id(x): x for x in (*model.parameters(), *model.buffers())}.values():
        replace_tensor(tensor, DistributedTensor.stored_as(tensor, cut_type(tensor.shape, tensor.dtype)))
    return model


def filled(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.fill_(value)
    return model


def trained(sites: int | None, steps: int = 2) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model whose optimizer has some state, unsharded or on sites, with the same numbers."""
    model = new_model("gpt", torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    for x, y in batches("gpt", steps):
        CASES["gpt"].loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    if sites is not None:
        on_sites(model, sites)
        for p, state in optimizer.state.items():
            for name, value in state.items():
                if value.shape == p.shape:
                    state[name] = DistributedTensor.stored_as(value, p.physical_type)
    return model, optimizer


def whole(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    state = [x for each in optimizer.state.values() for _, x in sorted(each.items())]
    return [gathered(x) for x in (*model.state_dict().values(), *state)]


PAIRS = list(itertools.product([*SITES, None], repeat=2))
SOME = [(1, 4), (4, 4), (3, 8), (8, 2), (2, None), (None, 3), (4, 1)]


@pytest.mark.parametrize(("saved", "loaded"), PAIRS if EVERYTHING else SOME)
def test_a_checkpoint_goes_from_any_sites_to_any_other(saved: int | None, loaded: int | None, tmp_path: Path) -> None:
    model, optimizer = trained(saved)
    wanted = whole(model, optimizer)
    joinsum.save_checkpoint(tmp_path, model, optimizer, extra={"epoch": 3, "names": ["a"]})
    other, its = trained(loaded, steps=1)
    assert joinsum.load_checkpoint(tmp_path, other, its) == {"epoch": 3, "names": ["a"]}
    assert all(torch.equal(x, y) for x, y in zip(whole(other, its), wanted, strict=True))
    assert other.head.weight is other.tokens.weight
    assert all(isinstance(p, DistributedTensor) == (loaded is not None) for p in other.parameters())


@pytest.mark.parametrize("sites", [None, 4])
def test_a_fresh_optimizer_takes_state_and_options(sites: int | None, tmp_path: Path) -> None:
    model, optimizer = trained(None)
    optimizer.param_groups[0]["lr"] = 0.125
    joinsum.save_checkpoint(tmp_path, model, optimizer)
    wanted = whole(model, optimizer)
    other = new_model("gpt", torch.float64)
    if sites is not None:
        on_sites(other, sites)
    fresh = torch.optim.AdamW(other.parameters(), amsgrad=True)
    joinsum.load_checkpoint(tmp_path, other, fresh)
    assert all(torch.equal(x, y) for x, y in zip(whole(other, fresh), wanted, strict=True))
    assert fresh.param_groups[0]["lr"] == 0.125
    assert fresh.param_groups[0]["betas"] == (0.9, 0.999)
    moments = [state["exp_avg"] for state in fresh.state.values()]
    assert all(isinstance(x, DistributedTensor) == (sites is not None) for x in moments)


def test_a_step_goes_on_from_a_checkpoint_as_if_nothing_had_happened(tmp_path: Path) -> None:
    data, loss = batches("mlp", 6, dtype=torch.float64), CASES["mlp"].loss

    def fresh(sites: int) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
        torch._dynamo.reset()
        joinsum.init(sites=sites, cluster=CUTTING)
        model = new_model("mlp", torch.float64)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        return model, optimizer, joinsum.train_step(model, loss, optimizer)

    model, optimizer, step = fresh(3)
    for x, y in data[:3]:
        step(x, y)
    assert divided(model)
    joinsum.save_checkpoint(tmp_path, model, optimizer)
    wanted = [step(x, y).item() for x, y in data[3:]]
    model, optimizer, step = fresh(4)
    step(*data[0])
    joinsum.load_checkpoint(tmp_path, model, optimizer)
    assert [step(x, y).item() for x, y in data[3:]] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("sites", [1, 3, 4])
@pytest.mark.parametrize("replicated", [False, True])
def test_torchs_own_checkpoints_take_blocks(sites: int, replicated: bool, tmp_path: Path) -> None:
    joinsum.init(sites=sites)
    x = torch.arange(20.0).reshape(5, 4)
    place = "replicated" if replicated else None
    dcp.save({"x": DistributedTensor.of(x, parts=(sites, 2), place=place)}, checkpoint_id=tmp_path, no_dist=True)
    plain = {"x": torch.zeros(5, 4)}
    dcp.load(plain, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(plain["x"], x)
    other = DistributedTensor.of(torch.zeros(5, 4), parts=(1, 3), place="replicated")
    other.add_(0)
    dcp.load({"x": other}, checkpoint_id=tmp_path, no_dist=True)
    assert torch.equal(other.full_tensor(), x)
    assert all(torch.equal(block, x) for block in other.blocks())


# --- what goes wrong --------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_another_model_lists_all_that_differs(tmp_path: Path) -> None:
    joinsum.save_checkpoint(tmp_path, nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)}))
    other = filled(nn.ModuleDict({"a": nn.Linear(2, 4), "c": nn.Linear(2, 3)}), 1.0)
    with pytest.raises(CheckpointError) as raised:
        joinsum.load_checkpoint(tmp_path, other)
    text = str(raised.value)
    assert "missing=['model.c.bias', 'model.c.weight'], unexpected=['model.b.bias', 'model.b.weight']" in text
    assert "model.a.weight: saved=[3, 2] torch.float32, wanted=[4, 2] torch.float32" in text
    assert all((p == 1).all() for p in other.parameters())


@pytest.mark.parametrize("damage", ["cut", "gone", "no folder", "no json", "other json"])
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(damage: str, tmp_path: Path) -> None:
    joinsum.save_checkpoint(tmp_path, nn.Linear(2, 3))
    current = tmp_path / "current.json"
    (data,) = (path for path in tmp_path.iterdir() if path.is_dir())
    file = next(path for path in data.iterdir() if path.suffix == ".distcp")
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "gone":
        file.unlink()
    elif damage == "no json":
        current.write_text('{"form')
    elif damage == "other json":
        current.write_text("[1]")
    folder = tmp_path / "elsewhere" if damage == "no folder" else tmp_path
    model = filled(nn.Linear(2, 3), 7.0)
    with pytest.raises(CheckpointError, match=str(folder)):
        joinsum.load_checkpoint(folder, model)
    assert all((p == 7).all() for p in model.parameters())


def test_bytes_that_are_damaged_without_a_change_of_size_change_nothing(tmp_path: Path) -> None:
    joinsum.save_checkpoint(tmp_path, nn.Linear(2, 3))
    file = next(tmp_path.glob("joinsum-*/*.distcp"))
    file.write_bytes(bytes(len(file.read_bytes())))
    model = filled(nn.Linear(2, 3), 7.0)
    with pytest.raises(CheckpointError, match="cannot be read"):
        joinsum.load_checkpoint(tmp_path, model)
    assert all((p == 7).all() for p in model.parameters())


KILLED = """
    import os, signal, sys, torch, joinsum
    from joinsum.distributed import checkpoint as state

    model = torch.nn.Linear(2, 3)
    folder, place = sys.argv[1:]
    with torch.no_grad():
        [p.fill_(1.0) for p in model.parameters()]
    joinsum.save_checkpoint(folder, model, extra={"step": 1})

    def end(*arguments, **options):
        os.kill(os.getpid(), signal.SIGKILL)

    with torch.no_grad():
        [p.fill_(2.0) for p in model.parameters()]
    module, name = {"writing": (state, "_finish"), "renaming": (os, "rename"), "replacing": (os, "replace"),
                    "tidying": (state.shutil, "rmtree")}[place]
    setattr(module, name, end)
    joinsum.save_checkpoint(folder, model, extra={"step": 2})
"""


@pytest.mark.parametrize(("place", "step"), [("writing", 1), ("renaming", 1), ("replacing", 1), ("tidying", 2)])
def test_a_complete_checkpoint_is_left_wherever_the_process_is_killed(place: str, step: int, tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), place], timeout=120)
    assert ended.returncode == -signal.SIGKILL
    model = nn.Linear(2, 3)
    assert joinsum.load_checkpoint(tmp_path, model) == {"step": step}
    assert all((p == step).all() for p in model.parameters())
    joinsum.save_checkpoint(tmp_path, model)
    assert len(list(tmp_path.iterdir())) == 2  # what was left over is gone


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-500").mkdir()
    (tmp_path / "joinsum-notes").mkdir()
    for _ in range(2):
        joinsum.save_checkpoint(tmp_path, nn.Linear(2, 3))
    assert {"checkpoint-500", "joinsum-notes", "current.json"} < {path.name for path in tmp_path.iterdir()}


def test_what_has_no_form_in_json_is_refused_and_the_last_one_stays(tmp_path: Path) -> None:
    model = nn.Linear(2, 3)
    joinsum.save_checkpoint(tmp_path, model, extra={"step": 1})
    with pytest.raises(TypeError, match="JSON"):
        joinsum.save_checkpoint(tmp_path, model, extra={"step": object()})
    assert joinsum.load_checkpoint(tmp_path, model) == {"step": 1}
    assert len(list(tmp_path.iterdir())) == 2


# --- safetensors ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cnn", "gpt"])
@pytest.mark.parametrize("sites", [1, 4])
def test_unsharded_weights_go_through_a_file(name: str, sites: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    wanted = {key: x.clone() for key, x in new_model(name).state_dict().items()}
    model = on_sites(new_model(name), sites)
    joinsum.save_safetensors(path, model)
    there = load_file(path)
    assert there.keys() == wanted.keys() - {"head.weight" if name == "gpt" else ""}
    assert all(torch.equal(x, wanted[key]) for key, x in there.items())
    joinsum.load_safetensors(path, filled(model, 0.0))
    plain = filled(new_model(name), 0.0)
    joinsum.load_safetensors(path, plain)
    for each in (model, plain):
        assert all(torch.equal(gathered(x), wanted[key]) for key, x in each.state_dict().items())
    assert [file.name for file in tmp_path.iterdir()] == ["model.safetensors"]


def test_files_of_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    joinsum.save_safetensors(path, nn.ModuleDict({"a": nn.Linear(2, 3), "b": nn.Linear(2, 3)}))
    other = filled(nn.ModuleDict({"a": nn.Linear(2, 4), "c": nn.Linear(2, 3)}), 1.0)
    with pytest.raises(CheckpointError, match=r"missing=\['c.bias', 'c.weight'\], unexpected=\['b.bias', 'b.weight'\]"):
        joinsum.load_safetensors(path, other)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(CheckpointError, match="cut off"):
        joinsum.load_safetensors(path, other)
    with pytest.raises(FileNotFoundError):
        joinsum.load_safetensors(tmp_path / "none", other)
    assert all((p == 1).all() for p in other.parameters())


def test_texts_are_written_beside_weights(tmp_path: Path) -> None:
    path, model = tmp_path / "model.safetensors", new_model("gpt")  # its head has the embedding's weights
    joinsum.save_safetensors(path, model, {"epoch": "3", "note": "ä"})
    assert joinsum.load_safetensors(path, new_model("gpt")) == {"epoch": "3", "note": "ä"}
    joinsum.save_safetensors(path, model)
    assert joinsum.load_safetensors(path, model) == {}
    for metadata, cause in (
        ({"epoch": 3}, "are texts"),
        ({"head.weight": ""}, "another name"),
        ({"format": "np"}, "another name"),
    ):
        with pytest.raises(joinsum.PlanError, match=cause):
            joinsum.save_safetensors(path, model, metadata)


def in_files(folder: Path, model: nn.Module, files: int) -> None:
    """Writes weights as Hugging Face's `save_pretrained` does for large models: several files and their index."""
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())  # a shared one once
    places = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors" for i, name in enumerate(tensors)}
    for file in set(places.values()):
        save_file(
            {name: tensors[name].detach() for name in tensors if places[name] == file}, folder / file, {"format": "pt"}
        )
    index = {"metadata": {"total_size": sum(x.nbytes for x in tensors.values())}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index))


INDEX = "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["cnn", "gpt"])
@pytest.mark.parametrize("sites", [None, 1, 4])
def test_weights_in_several_files_are_read_from_their_folder_or_index(
    name: str, sites: int | None, tmp_path: Path
) -> None:
    wanted = {key: x.clone() for key, x in new_model(name).state_dict().items()}
    in_files(tmp_path, new_model(name), 3)
    for path in (tmp_path, tmp_path / INDEX):
        model = new_model(name) if sites is None else on_sites(new_model(name), sites)
        assert joinsum.load_safetensors(path, filled(model, 0.0)) == {}
        assert all(torch.equal(gathered(x), wanted[key]) for key, x in model.state_dict().items())


def test_a_folder_with_one_file_is_read(tmp_path: Path) -> None:
    joinsum.save_safetensors(tmp_path / "model.safetensors", filled(nn.Linear(2, 3), 2.0))
    model = nn.Linear(2, 3)
    joinsum.load_safetensors(tmp_path, model)
    assert all((p == 2).all() for p in model.parameters())


def test_blocks_of_inner_factors_other_dtypes_and_scalars_are_read(tmp_path: Path) -> None:
    joinsum.init(sites=4)
    model = nn.ParameterDict({"heads": torch.randn(6, 8), "number": torch.tensor(3.0), "none": torch.ones(0, 4)})
    save_file({name: x.detach() for name, x in model.items()}, tmp_path / "model.safetensors")
    wanted = {name: x.detach().clone() for name, x in model.items()}
    heads = joinsum.relation(torch.zeros(6, 2, 4, dtype=torch.float64), parts=(1, 1, 4)).stored()
    stored = DistributedTensor(heads, (6, 8))  # each site has a quarter of each head
    replace_tensor(model["heads"], stored)
    joinsum.load_safetensors(tmp_path, filled(model, 0.0))
    assert torch.equal(gathered(model["heads"]), wanted["heads"].double())
    assert all(torch.equal(model[name], wanted[name]) for name in ("number", "none"))


def damaged(folder: Path, how: str) -> None:
    index = json.loads((folder / INDEX).read_text())
    places = index["weight_map"]
    last = folder / max(places.values())
    if how == "cut off":
        last.write_bytes(last.read_bytes()[:-9])
    elif how == "missing":
        del places["1.bias"]
        kept = {name: x for name, x in load_file(last).items() if name != "1.bias"}
        save_file(kept, last)
    elif how == "other shapes":
        save_file({name: x[:1].clone() for name, x in load_file(last).items()}, last)
    elif how == "in two files":
        save_file(load_file(last) | load_file(folder / min(places.values())), last)
    elif how == "not where the index says":
        places["0.weight"] = last.name
    elif how == "not an index":
        index = {"weight_map": [1]}
    else:
        (folder / "elsewhere").mkdir()
        last.rename(folder / "elsewhere" / last.name)
        name = f"elsewhere/{last.name}" if how == "outside of its folder" else str(folder / "elsewhere" / last.name)
        index["weight_map"] = {key: name if file == last.name else file for key, file in places.items()}
    (folder / INDEX).write_text(json.dumps(index))


DAMAGES = ["cut off", "missing", "other shapes", "in two files", "not where the index says", "not an index"]


@pytest.mark.parametrize("how", [*DAMAGES, "outside of its folder", "outside of its folder, absolute"])
def test_several_files_of_which_one_does_not_fit_are_refused_and_nothing_changes(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    in_files(folder, nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), 2)
    damaged(folder, how)
    model = filled(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), 7.0)
    with pytest.raises(CheckpointError, match=how.partition(",")[0]):
        joinsum.load_safetensors(folder, model)
    assert all((p == 7).all() for p in model.parameters())


def test_a_file_of_the_index_that_is_missing_raises_as_open_does(tmp_path: Path) -> None:
    in_files(tmp_path, nn.Linear(2, 3), 2)
    next(tmp_path.glob("model-00002*")).unlink()
    model = filled(nn.Linear(2, 3), 7.0)
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002"):
        joinsum.load_safetensors(tmp_path, model)
    assert all((p == 7).all() for p in model.parameters())


def test_a_model_without_memory_is_refused(tmp_path: Path) -> None:
    joinsum.save_safetensors(tmp_path / "model.safetensors", nn.Linear(2, 3))
    with pytest.raises(joinsum.PlanError, match=r"first=weight, count=2; call joinsum\.distribute"):
        joinsum.load_safetensors(tmp_path, nn.Linear(2, 3, device="meta"))


def test_of_a_distributed_tensor_only_the_ranges_of_its_blocks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joinsum.init(sites=4)
    model = nn.ParameterDict({"weight": torch.randn(8, 5), "bias": torch.randn(8)})
    joinsum.save_safetensors(tmp_path / "model.safetensors", model)
    wanted = {name: x.detach().clone() for name, x in model.items()}
    on_sites(model, 4)
    read: list[int] = []

    class Counting:
        """An opened file that notes how many elements each reading takes."""

        def __init__(self, opened: Any, name: str) -> None:
            self._opened, self._name = opened, name

        def __getattr__(self, name: str) -> Any:
            assert name != "get_tensor"
            return getattr(self._opened, name)

        def get_slice(self, name: str) -> Any:
            return Counting(self._opened.get_slice(name), name)

        def __getitem__(self, ranges: Any) -> Tensor:
            found: Tensor = self._opened[ranges]
            read.append(found.numel())
            return found

    opened = safetensors._opened

    @contextmanager
    def counting(path: Path) -> Iterator[Any]:
        with opened(path) as source:
            yield Counting(source, "")

    monkeypatch.setattr(safetensors, "_opened", counting)
    joinsum.load_safetensors(tmp_path, filled(model, 0.0))
    assert sorted(read) == [2] * 4 + [10] * 4  # of each site its quarter
    assert all(torch.equal(gathered(model[name]), wanted[name]) for name in wanted)


def test_the_note_of_a_checkpoint_can_be_read_by_others(tmp_path: Path) -> None:
    joinsum.save_checkpoint(tmp_path, nn.Linear(2, 3), extra={"step": 5})
    note = json.loads((tmp_path / "current.json").read_text())
    assert note["extra"] == {"step": 5}
    plain = {"model.weight": torch.zeros(3, 2)}
    dcp.load(plain, checkpoint_id=tmp_path / note["data"], no_dist=True)
    assert plain["model.weight"].abs().sum() > 0
