"""Independent subnet training against its definition: subnets cut, trained and put back by plain torch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import joinsum
import joinsum.ist.discovery
import pytest
import torch
from torch import nn

Optimizer = torch.optim.Optimizer
Make = Callable[[Iterable[nn.Parameter]], Optimizer]


def mlp(
    *widths: int, norm: type[nn.Module] = nn.BatchNorm1d, seed: int = 1, dtype: Any = None, bias: bool = True
) -> nn.Sequential:
    """Linear (with `bias`), norm and ReLU for each hidden layer, and a last Linear."""
    torch.manual_seed(seed)
    modules: list[nn.Module] = []
    for features, hidden in pairwise(widths[:-1]):
        modules += [nn.Linear(features, hidden, bias=bias), norm(hidden), nn.ReLU()]
    return nn.Sequential(*modules, nn.Linear(widths[-2], widths[-1])).to(dtype or torch.float32)


def batches(count: int, features: int, classes: int, dtype: Any = None) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(5)
    return [
        (
            torch.randn(12, features, generator=generator, dtype=dtype),
            torch.randint(0, classes, (12,), generator=generator),
        )
        for _ in range(count)
    ]


def step(model: nn.Module, optimizer: Optimizer, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    optimizer.step()


# --- the definition, by plain torch -----------------------------------------------------------------------------------


class Reference:
    """A stack of `mlp` whose sites train copies of blocks, with states that follow the neurons."""

    def __init__(self, model: nn.Sequential, make: Make, sites: int) -> None:
        self.full = {
            name: tensor.detach().clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())
        }
        self.states: dict[str, dict[str, torch.Tensor]] = {}
        self.first = {"step_size": 0.01}  # of states that do not start at zero
        self.steps: list[dict[str, dict[str, Any]]] = [{} for _ in range(sites)]
        self.own_states: list[dict[str, dict[str, torch.Tensor]]] = [{} for _ in range(sites)]
        self.make, self.sites = make, sites
        self.hidden = [str(place) for place, module in enumerate(model) if isinstance(module, nn.Linear)][:-1]
        self.norm, self.bias = type(model[1]), model[0].bias is not None

    def take(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Begins with the states of an optimizer of the full model."""
        for name, parameter in model.named_parameters():
            for key, value in optimizer.state.get(parameter, {}).items():
                if not isinstance(value, torch.Tensor) or value.shape != parameter.shape:
                    for own in self.steps:
                        own.setdefault(name, {})[key] = copy.deepcopy(value)
                elif self.axes(name):
                    self.states.setdefault(name, {})[key] = value.clone()
                else:
                    for own in self.own_states:
                        own.setdefault(name, {})[key] = value.clone()

    def axes(self, name: str) -> dict[int, str]:
        """For each axis of a tensor that is cut, the hidden layer."""
        place, _, tensor = name.partition(".")
        number = int(place)
        if number % 3 == 1:
            return {0: str(number - 1)} if self.full[name].dim() else {}
        found = {0: place} if place in self.hidden else {}
        if tensor == "weight" and number:
            found[1] = str(number - 3)
        return found

    def round(self, neurons: Callable[[str, int], list[int]], data: list[list[Any]]) -> None:
        """Trains each site on its batches and writes back."""
        shared: list[dict[str, torch.Tensor]] = []
        results = []
        for site in range(self.sites):
            index = {layer: torch.tensor(neurons(layer, site)) for layer in self.hidden}
            widths = [self.full["0.weight"].shape[1], *(len(index[layer]) for layer in self.hidden)]
            last = max(int(name.partition(".")[0]) for name in self.full)
            widths.append(self.full[f"{last}.weight"].shape[0])
            model = mlp(*widths, norm=self.norm, dtype=self.full["0.weight"].dtype, bias=self.bias)
            optimizer = self.make(model.parameters())
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.data.copy_(self.part(self.full[name], name, index))
                state = {key: self.part(value, name, index).clone() for key, value in self.states.get(name, {}).items()}
                state |= self.own_states[site].get(name, {}) | self.steps[site].get(name, {})
                if state:
                    optimizer.state[tensor] = state
            for batch in data[site]:
                step(model, optimizer, batch)
            results.append((index, model, optimizer))
        for site, (index, model, optimizer) in enumerate(results):
            shared.append({})
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                cut = self.axes(name)
                if cut:
                    self.write(self.full[name], name, index, tensor.detach())
                else:
                    shared[-1][name] = tensor.detach()
                for key, value in optimizer.state.get(tensor, {}).items():
                    if not isinstance(value, torch.Tensor) or value.shape != tensor.shape:
                        self.steps[site].setdefault(name, {})[key] = value
                    elif cut:
                        first = torch.full_like(self.full[name], self.first.get(key, 0.0))
                        whole = self.states.setdefault(name, {}).setdefault(key, first)
                        self.write(whole, name, index, value)
                    else:
                        self.own_states[site].setdefault(name, {})[key] = value
        for name in shared[0]:
            if self.full[name].is_floating_point():
                self.full[name] = torch.stack([each[name] for each in shared]).mean(0)
            else:
                self.full[name] = shared[0][name]

    def part(self, tensor: torch.Tensor, name: str, index: dict[str, torch.Tensor]) -> torch.Tensor:
        for axis, layer in self.axes(name).items():
            tensor = tensor.index_select(axis, index[layer])
        return tensor

    def write(self, whole: torch.Tensor, name: str, index: dict[str, torch.Tensor], part: torch.Tensor) -> None:
        axes = self.axes(name)
        rows = index[axes[0]] if 0 in axes else torch.arange(whole.shape[0])
        if whole.dim() == 1:
            whole[rows] = part
        else:
            columns = index[axes[1]] if 1 in axes else torch.arange(whole.shape[1])
            whole[rows[:, None], columns[None, :]] = part


# A bias before a norm has no gradient but rounding errors, which a small eps would blow up.
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, eps=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, eps=1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True, eps=1e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, initial_accumulator_value=0.1),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=0.5, eps=1e-3),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01, eps=1e-3),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01, eps=1e-3),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01, eps=1e-3),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.05, t0=4, lambd=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


@pytest.mark.parametrize("homes", ["migrating", "fixed"])
@pytest.mark.parametrize(
    ("optimizer", "sites", "widths"),
    [
        *((name, 3, (7, 10, 12, 4)) for name in OPTIMIZERS),
        ("momentum", 2, (7, 9, 4)),
        ("adam", 4, (5, 37, 8, 33, 3)),
    ],
)
def test_subnets_train_as_plain_torch_trains_their_blocks(
    optimizer: str, sites: int, widths: tuple[int, ...], homes: Any
) -> None:
    joinsum.init(sites=sites)
    make, rounds, every = OPTIMIZERS[optimizer], 4, 3
    model = mlp(*widths, dtype=torch.float64, bias=optimizer != "rprop")  # which takes the sign of rounding errors
    reference = Reference(model, make, sites)
    own = make(model.parameters())
    reference.take(model, own)  # Adagrad has one
    ist = joinsum.IST(model, own, every=every, seed=3, homes=homes)
    data = batches(rounds * every * sites, widths[0], widths[-1], torch.float64)
    train_both(reference, ist, model, own, data, every)


def train_both(
    reference: Reference, ist: joinsum.IST, model: nn.Module, own: Optimizer, data: list[Any], every: int
) -> None:
    """Whole rounds, which must end with the same full model."""
    sites, before = reference.sites, ist.rounds
    for number, start in enumerate(range(0, len(data), every * sites), before + 1):
        mine = data[start : start + every * sites]
        reference.round(ist.neurons, [mine[site::sites] for site in range(sites)])
        for batch in mine:
            step(model, own, batch)
        assert ist.rounds == number
    ist.gather()
    found = dict((*model.named_parameters(), *model.named_buffers()))
    for name, wanted in reference.full.items():
        torch.testing.assert_close(found[name].detach(), wanted, rtol=1e-10, atol=1e-10, msg=name)


@pytest.mark.parametrize("sites", [2, 3])
@pytest.mark.parametrize("optimizer", ["momentum", "adam", "rmsprop"])
def test_plain_training_that_has_begun_goes_on_with_its_states(optimizer: str, sites: int) -> None:
    joinsum.init(sites=sites)
    make = OPTIMIZERS[optimizer]

    def warmed() -> tuple[nn.Sequential, Optimizer]:
        model = mlp(7, 10, 12, 4, dtype=torch.float64)
        own = make(model.parameters())
        for batch in batches(3, 7, 4, torch.float64):
            step(model, own, batch)
        return model, own

    (model, own), (plain, other) = warmed(), warmed()
    ist = joinsum.IST(model, own, every=2, seed=3)
    assert own.state[model[0].weight].keys() == other.state[plain[0].weight].keys()
    ist.gather()
    for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(p, q)
        assert own.state[p].keys() == other.state[q].keys()
        rounding = 1e-15 if name == "6.bias" else 0.0  # of a mean of equal moments
        for key, wanted in other.state[q].items():
            torch.testing.assert_close(own.state[p][key], wanted, rtol=rounding, atol=0.0, msg=f"{name}.{key}")
    reference = Reference(plain, make, sites)
    reference.take(plain, other)
    ist = joinsum.IST(plain, other, every=2, seed=3)
    train_both(reference, ist, plain, other, batches(6 * sites, 7, 4, torch.float64), 2)


# --- oracles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sites", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("state", ["carry", "reset"])
def test_rounds_without_learning_leave_the_model_to_the_bit(sites: int, state: Any) -> None:
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 11, 3), mlp(6, 9, 20, 11, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    with joinsum.IST(model, optimizer, every=2, state=state) as ist:
        for batch in batches(6 * sites, 6, 3):
            step(model, optimizer, batch)
    assert ist.rounds == 3
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_one_site_trains_as_plain_torch_to_the_bit(optimizer: str) -> None:
    joinsum.init(sites=1)
    model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
    own, other = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](plain.parameters())
    with joinsum.IST(model, own, every=2) as ist:
        for batch in batches(7, 6, 3):
            step(model, own, batch)
            step(plain, other, batch)
    assert ist.rounds == 3
    for name, wanted in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name], wanted), name
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        assert own.state[p].keys() == other.state[q].keys()
        for key, wanted in other.state[q].items():
            assert torch.equal(torch.as_tensor(own.state[p][key]), torch.as_tensor(wanted)), key


def owners(ist: joinsum.IST, layer: str, neurons: int, sites: int) -> list[int]:
    """The site that trains each neuron; each is on one."""
    found = [-1] * neurons
    for site in range(sites):
        for neuron in ist.neurons(layer, site):
            assert found[neuron] == -1
            found[neuron] = site
    assert -1 not in found
    return found


@pytest.mark.parametrize(("sites", "homes"), [(2, "migrating"), (3, "migrating"), (4, "migrating"), (4, "fixed")])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_wire_carries_what_follows_from_the_locations_to_the_byte(sites: int, homes: Any, momentum: float) -> None:
    joinsum.init(sites=sites)
    widths = (5, 13, 24, 3)
    model = mlp(*widths, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    ist = joinsum.IST(model, optimizer, every=1, seed=2, homes=homes)
    where: dict[tuple[int, int], int] = {}
    first, second = (owners(ist, layer, widths[1 + number], sites) for number, layer in enumerate(("0", "3")))
    home = [
        [site for site in range(sites) for _ in range(-(-site * n // sites), -(-(site + 1) * n // sites))]
        for n in widths[1:3]
    ]
    for i in range(widths[2]):
        for j in range(widths[1]):
            where[i, j] = second[i] if second[i] == first[j] else home[1][i]
    copies = 1 + (momentum > 0)
    for number, batch in enumerate(batches(5 * sites, 5, 3)):
        before = (first, second)
        if (number + 1) % sites == 0:
            predicted = ist.explain().round_bytes if number >= sites else None
        step(model, optimizer, batch)
        if (number + 1) % sites:
            continue
        first, second = (owners(ist, layer, widths[1 + n], sites) for n, layer in enumerate(("0", "3")))
        floats = 0
        for old, new, at, width in ((before[0], first, home[0], 5 + 3), (before[1], second, home[1], 3 + 3)):
            for was, now, its in zip(old, new, at, strict=True):
                floats += width * ((was != now) if homes == "migrating" else (was != its) + (its != now))
        for (i, j), was in where.items():
            trained_before, trained_next = before[1][i] == before[0][j], second[i] == first[j]
            if homes == "migrating":
                rests = before[1][i] if trained_before else was
                floats += trained_next and rests != second[i]
                where[i, j] = second[i] if trained_next else rests
            else:
                floats += (trained_before and before[1][i] != home[1][i]) + (trained_next and home[1][i] != second[i])
        shared = 2 * (sites - 1) * 3  # the output's bias: a reduce-scatter and an all-gather
        sent = sum(entry.bytes_sent for entry in joinsum.trace())
        assert sent == 4 * (copies * floats + shared)
        if predicted is not None:
            assert predicted == sent


@pytest.mark.parametrize("buddy", [False, True])
def test_what_moves_is_rounded_and_what_stays_is_not(buddy: bool) -> None:
    """Without learning, a weight that has moved is its bfloat16 value, and one that has never moved is as it was."""
    sites = 3
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 3, norm=nn.LayerNorm), mlp(6, 9, 20, 3, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1, wire=torch.bfloat16, buddy=buddy)
    moved = torch.zeros(9, dtype=torch.bool)
    where = torch.tensor(owners(ist, "0", 9, sites))
    sent = []
    for number, batch in enumerate(batches(2 * sites, 6, 3)):
        predicted = ist.explain().round_bytes
        step(model, optimizer, batch)
        if (number + 1) % sites == 0:
            after = torch.tensor(owners(ist, "0", 9, sites))
            moved |= after != where
            where = after
            sent.append(sum(entry.bytes_sent for entry in joinsum.trace()))
            assert sent[-1] == predicted
    ist.gather()
    wanted = plain[0].weight.detach()
    assert moved.any()
    assert torch.equal(model[0].weight[moved], wanted[moved].bfloat16().float())
    assert torch.equal(model[0].weight[~moved], wanted[~moved])
    middle = model[3].weight.detach()
    assert torch.equal(torch.where(middle == plain[3].weight, middle, plain[3].weight.bfloat16().float()), middle)


def test_resting_weights_stay_balanced_over_the_sites() -> None:
    sites, worst = 4, 1.0
    joinsum.init(sites=sites)
    model = mlp(2, 64, 64, 2, norm=nn.LayerNorm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    x = torch.randn(2, 2)
    for number in range(40 * sites):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        if (number + 1) % (8 * sites) == 0:
            plan = ist.explain().plan
            assert plan is not None
            (resting,) = (type_ for name, type_ in plan.inputs.items() if name.endswith("_rest"))
            (active,) = (plan.inputs[name.removesuffix("_rest")] for name in plan.inputs if name.endswith("_rest"))
            held = [resting.bytes(site) + active.bytes(site) for site in range(sites)]
            assert sum(held) == 4 * 64 * 64
            worst = max(worst, max(held) * sites / sum(held))
    assert worst <= 1.3


# --- the full model ---------------------------------------------------------------------------------------------------


def test_the_full_model_is_the_one_that_gather_gives() -> None:
    joinsum.init(sites=3)
    model = mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ist = joinsum.IST(model, optimizer, every=2)
    data = batches(14, 6, 3)
    for batch in data:  # in the middle of a round, and of the sites' turns
        step(model, optimizer, batch)
    with ist.full() as full, torch.no_grad():
        assert not full.training
        found, state = full(data[0][0]), joinsum.full_state_dict(full)
    with ist.full(calibrate=data, batches=4) as full, torch.no_grad():
        calibrated = full(data[0][0])
    step(model, optimizer, data[0])
    step(model, optimizer, data[1])
    ist.gather()
    plain = mlp(6, 9, 20, 3)
    plain.load_state_dict(state)
    torch.testing.assert_close(found, plain.eval()(data[0][0]))
    torch.optim.swa_utils.update_bn([x for x, _ in data[:4]], plain)
    torch.testing.assert_close(calibrated, plain.eval()(data[0][0]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sites", [1, 3])
def test_a_bag_of_embeddings_is_a_layer_whose_full_model_is_saved_for_the_plain_one(sites: int, tmp_path: Path) -> None:
    def network() -> nn.Sequential:
        layers = (nn.BatchNorm1d(20), nn.ReLU(), nn.Linear(20, 3))
        return nn.Sequential(nn.EmbeddingBag(30, 20, mode="sum", padding_idx=0), *layers)

    joinsum.init(sites=sites)
    torch.manual_seed(2)
    model = network()
    ist = joinsum.IST(model, torch.optim.Adam(model.parameters(), lr=0.01), every=2)
    assert model[0].weight.shape == (30, -(-20 // sites))
    generator = torch.Generator().manual_seed(5)
    data = [(torch.randint(30, (12, 7), generator=generator), classes) for _, classes in batches(4 * sites, 6, 3)]
    for batch in data:
        step(model, ist.optimizer, batch)
    assert ist.rounds == 2
    words = [each for each, _ in data]
    with ist.full(calibrate=words) as full, torch.no_grad():
        found = full(words[0])
        joinsum.save_safetensors(tmp_path / "model.safetensors", full)
    ist.gather()
    plain = network()
    joinsum.load_safetensors(tmp_path / "model.safetensors", plain)
    for (name, loaded), trained in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(loaded, trained), name
    torch.testing.assert_close(found, plain.eval()(words[0]), rtol=1e-5, atol=1e-5)


def test_evaluation_changes_nothing_in_training() -> None:
    joinsum.init(sites=2)
    results = []
    for evaluates in (False, True):
        model = mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        ist = joinsum.IST(model, optimizer, every=2)
        for number, batch in enumerate(batches(13, 6, 3)):
            step(model, optimizer, batch)
            if evaluates and number in (4, 5, 7):
                with ist.full(calibrate=[batch]) as full, torch.no_grad():
                    full(batch[0])
                ist.explain()
        results.append(ist.gather().state_dict())
    for name, wanted in results[0].items():
        assert torch.equal(results[1][name], wanted), name


@pytest.mark.parametrize("later", [1, 2, 3, 5])
def test_a_checkpoint_goes_on_at_another_number_of_sites(later: int, tmp_path: Path) -> None:
    joinsum.init(sites=3)
    make = OPTIMIZERS["adam"]
    model = mlp(6, 9, 20, 3, dtype=torch.float64)
    optimizer = make(model.parameters())
    ist = joinsum.IST(model, optimizer, every=2, seed=4)
    for batch in batches(11, 6, 3, torch.float64):
        step(model, optimizer, batch)
    assert (ist.rounds, ist.steps) == (1, 3)
    ist.save_checkpoint(tmp_path, {"epoch": 1})
    saved = {name: tensor.clone() for name, tensor in ist.gather().state_dict().items()}
    states = {name: optimizer.state[p]["exp_avg"].clone() for name, p in model.named_parameters()}

    plain = mlp(6, 9, 20, 3, seed=9, dtype=torch.float64)
    joinsum.load_checkpoint(tmp_path, plain)
    assert all(torch.equal(plain.state_dict()[name], wanted) for name, wanted in saved.items())

    joinsum.init(sites=later)
    again = mlp(6, 9, 20, 3, seed=9, dtype=torch.float64)
    other = torch.optim.Adam(again.parameters(), lr=1.0)
    for goes_on in (False, True):
        resumed = joinsum.IST(again, other, every=2, seed=0)
        assert resumed.load_checkpoint(tmp_path) == {"epoch": 1}
        assert (resumed.rounds, resumed.steps) == (2, 3)
        assert other.param_groups[0]["lr"] == 0.01
        if goes_on:
            reference = Reference(model, make, later)
            reference.take(model, optimizer)
            train_both(reference, resumed, again, other, batches(4 * later, 6, 3, torch.float64), 2)
            assert resumed.steps == 7
        else:
            resumed.gather()
            assert all(torch.equal(again.state_dict()[name], wanted) for name, wanted in saved.items())
            for name, p in again.named_parameters():
                # The mean of what all sites have may differ in the last bit.
                tolerance = 1e-14 if name == "6.bias" else 0.0
                torch.testing.assert_close(other.state[p]["exp_avg"], states[name], rtol=tolerance, atol=0.0)


@pytest.mark.parametrize("state", ["carry", "reset"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_checkpoints_of_all_optimizers_go_on_as_training_does(optimizer: str, state: Any, tmp_path: Path) -> None:
    class Scaled(nn.Module):
        """A first parameter that no layer cuts, and an MLP."""

        def __init__(self, seed: int) -> None:
            super().__init__()
            self.scale, self.inner = nn.Parameter(torch.ones(6)), mlp(6, 9, 20, 3, seed=seed)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x * self.scale)

    def begun(sites: int, seed: int) -> tuple[nn.Module, Optimizer, joinsum.IST]:
        joinsum.init(sites=sites)
        model = Scaled(seed)
        own = OPTIMIZERS[optimizer](model.parameters())
        return model, own, joinsum.IST(model, own, every=2, seed=4, state=state)

    def ended(ist: joinsum.IST, model: nn.Module, own: Optimizer) -> dict[str, torch.Tensor]:
        ist.gather()
        states = {
            f"{name}.{key}": value
            for name, p in model.named_parameters()
            for key, value in own.state.get(p, {}).items()
            if isinstance(value, torch.Tensor)
        }
        return {**model.state_dict(), **states}

    data = batches(21, 6, 3)
    for going_on, sites in (([], 3), ([], 1), (data[10:], 2)):
        model, own, ist = begun(2, 1)
        for batch in data[:10]:
            step(model, own, batch)
        ist.save_checkpoint(tmp_path)
        for batch in going_on:
            step(model, own, batch)
        wanted = ended(ist, model, own)
        again, other, resumed = begun(sites, 9)
        step(again, other, data[0])  # a checkpoint replaces what has been trained
        resumed.load_checkpoint(tmp_path)
        assert resumed.rounds == 3
        for batch in going_on:
            step(again, other, batch)
        found = ended(resumed, again, other)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            if sites == 2:
                assert torch.equal(found[name], value), name
            else:  # a mean of equal moments rounds
                torch.testing.assert_close(found[name], value, rtol=1e-6, atol=0.0, msg=name)


def test_a_checkpoint_of_another_optimizer_is_refused(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 3)
    optimizer = torch.optim.Adam(model.parameters())
    ist = joinsum.IST(model, optimizer, every=1)
    for batch in batches(2, 6, 3):
        step(model, optimizer, batch)
    ist.save_checkpoint(tmp_path)
    for other in (torch.optim.Rprop, torch.optim.Adagrad):
        again = mlp(6, 9, 3)
        resumed = joinsum.IST(again, other(again.parameters()))
        with pytest.raises(joinsum.CheckpointError, match=r"another optimizer: saved=\['exp_avg.*wanted="):
            resumed.load_checkpoint(tmp_path)


def test_weights_that_have_rested_start_with_the_state_of_new_parameters() -> None:
    joinsum.init(sites=2)
    groups = mlp(6, 8, 12, 3, norm=nn.LayerNorm)
    optimizer = torch.optim.Rprop(
        [{"params": groups[:3].parameters()}, {"params": groups[3:].parameters(), "lr": 0.03}], lr=0.01
    )
    ist = joinsum.IST(groups, optimizer, every=1)

    def whole() -> torch.Tensor:
        with ist.full() as full:
            return joinsum.full_state_dict(full)["3.weight"].clone()

    def active() -> torch.Tensor:
        found = torch.zeros(12, 8, dtype=torch.bool)
        for site in range(2):
            rows, columns = (torch.tensor(ist.neurons(layer, site)) for layer in ("3", "0"))
            found[rows[:, None], columns[None, :]] = True
        return found

    data, rested = batches(12, 6, 3), torch.ones(12, 8, dtype=torch.bool)
    news = 0
    for first in range(0, 12, 2):
        before, new = whole(), active() & rested
        rested &= ~active()
        for batch in data[first : first + 2]:
            step(groups, optimizer, batch)
        moved = (whole() - before)[new].abs()
        moved = moved[moved > 0]  # a ReLU may pass no gradient
        assert torch.allclose(moved, torch.tensor(0.03))
        news += len(moved) if first else 0
    assert news > 20


def test_a_plain_checkpoint_begins_the_first_round(tmp_path: Path) -> None:
    joinsum.init(sites=2)
    model = mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    step(model, optimizer, batches(1, 6, 3)[0])
    joinsum.save_checkpoint(tmp_path, model, optimizer, {"epoch": 4})
    again = mlp(6, 9, 20, 3, seed=9)
    other = torch.optim.Adam(again.parameters())
    ist = joinsum.IST(again, other)
    assert (ist.load_checkpoint(tmp_path), ist.rounds) == ({"epoch": 4}, 0)
    ist.gather()
    for (name, found), wanted in zip(again.named_parameters(), model.parameters(), strict=True):
        assert torch.equal(found, wanted), name
        assert torch.equal(other.state[found]["exp_avg"], optimizer.state[wanted]["exp_avg"]), name


def test_sites_that_have_taken_no_step_yet_come_back_too() -> None:
    joinsum.init(sites=3)
    for end in ("gather", "end_round"):
        model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        ist = joinsum.IST(model, optimizer, every=5)
        step(model, optimizer, batches(1, 6, 3)[0])
        getattr(ist, end)()
        if end == "end_round":
            for batch in batches(15, 6, 3):
                step(model, optimizer, batch)
            ist.gather()
        assert all(
            torch.equal(found, wanted) for found, wanted in zip(model.parameters(), plain.parameters(), strict=True)
        )


# --- lost sites -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sites", "lost", "left"), [(2, 0, 1), (3, 2, 2), (4, 1, 3), (4, 3, 1), (5, 0, 4), (4, 2, 6)])
@pytest.mark.parametrize("steps", [0, 2, 5, 9])
def test_weights_outlive_a_site(sites: int, lost: int, left: int, steps: int, tmp_path: Path) -> None:
    """Without learning, whatever the phase, what is put together is the model that was cut."""
    joinsum.init(sites=sites)
    model, plain = mlp(6, 9, 20, 11, 3), mlp(6, 9, 20, 11, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    for batch in batches(steps * sites, 6, 3):
        step(model, optimizer, batch)
    ist.save_survivor(tmp_path)
    (tmp_path / f"site_{lost}.pt").unlink()
    joinsum.init(sites=left)
    again = mlp(6, 9, 20, 11, 3, seed=8)
    other = torch.optim.Adam(again.parameters(), lr=0.5)
    resumed = joinsum.IST(again, other, every=2, buddy=True)
    resumed.load_survivors(tmp_path)
    assert (resumed.rounds, resumed.steps) == (steps // 2, 2 * (steps // 2))
    assert other.param_groups[0]["lr"] == 0.0
    for batch in batches(4 * left, 6, 3):
        step(again, other, batch)
    assert (resumed.rounds, resumed.steps) == (steps // 2 + 2, 2 * (steps // 2) + 4)
    resumed.gather()
    for (name, found), wanted in zip(again.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


def test_a_lost_sites_weights_are_those_of_the_rounds_beginning(tmp_path: Path) -> None:
    sites, lost = 3, 1
    joinsum.init(sites=sites)
    model = mlp(6, 9, 20, 3, dtype=torch.float64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    data = batches(9 * sites, 6, 3, torch.float64)
    for batch in data[: 8 * sites]:
        step(model, optimizer, batch)
    with ist.full() as full:
        begun = copy.deepcopy(joinsum.full_state_dict(full))  # the next call gives the same module other weights
    for batch in data[8 * sites :]:  # one step into the round
        step(model, optimizer, batch)
    with ist.full() as full:
        trained = joinsum.full_state_dict(full)
    gone = {layer: set(ist.neurons(layer, lost)) for layer in ("0", "3")}
    ist.save_survivor(tmp_path)
    (tmp_path / f"site_{lost}.pt").unlink()
    joinsum.init(sites=2)
    again = mlp(6, 9, 20, 3, seed=8, dtype=torch.float64)
    resumed = joinsum.IST(again, torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9), buddy=True)
    resumed.load_survivors(tmp_path)
    found = resumed.gather().state_dict()
    for neuron in range(9):
        source = begun if neuron in gone["0"] else trained
        assert torch.equal(found["0.weight"][neuron], source["0.weight"][neuron])
    for i in range(20):
        for j in range(9):
            source = begun if i in gone["3"] and j in gone["0"] else trained
            assert found["3.weight"][i, j] == source["3.weight"][i, j]
    assert torch.equal(found["6.bias"], begun["6.bias"])


def test_what_is_lost_with_its_copies_is_named(tmp_path: Path) -> None:
    for buddy, gone in ((False, [1]), (True, [1, 2])):
        joinsum.init(sites=3)
        model = mlp(6, 9, 20, 3)
        ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1), buddy=buddy)
        folder = tmp_path / str(buddy)
        ist.save_survivor(folder)
        for site in gone:
            (folder / f"site_{site}.pt").unlink()
        joinsum.init(sites=1)
        again = mlp(6, 9, 20, 3)
        resumed = joinsum.IST(again, torch.optim.SGD(again.parameters(), lr=0.1))
        with pytest.raises(joinsum.CheckpointError, match=r"lost with all their copies.*tensor=0.weight, chunks="):
            resumed.load_survivors(folder)
    with pytest.raises(joinsum.CheckpointError, match="no site has written"):
        resumed.load_survivors(tmp_path / "empty")
    torch.save({"other": 1}, folder / "site_0.pt")
    with pytest.raises(joinsum.CheckpointError, match="not the weights of a site"):
        resumed.load_survivors(folder)


@pytest.mark.parametrize("sites", [2, 4])
def test_copies_cost_less_than_the_weights_that_are_trained(sites: int) -> None:
    joinsum.init(sites=sites)
    moved = {}
    for buddy in (False, True):
        model = mlp(5, 32, 32, 3, norm=nn.LayerNorm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        ist = joinsum.IST(model, optimizer, every=1, buddy=buddy)
        moved[buddy] = 0
        for number, batch in enumerate(batches(10 * sites, 5, 3)):
            step(model, optimizer, batch)
            if (number + 1) % sites == 0:
                moved[buddy] += sum(entry.bytes_sent for entry in joinsum.trace())
        assert ist.rounds == 10
    trained = 10 * 4 * (32 * (5 + 3) + 32 * 32 / sites + 32 * (3 + 3))
    assert moved[False] < moved[True] < moved[False] + trained


# --- loops ------------------------------------------------------------------------------------------------------------


def test_parameters_stay_the_same_objects_and_memory() -> None:
    joinsum.init(sites=1)
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.AdamW([{"params": model[0].parameters()}, {"params": model[1:].parameters(), "lr": 0.1}])
    parameters = list(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    ist = joinsum.IST(model, optimizer, every=2)
    for batch in batches(9, 6, 3):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    assert [id(p) for p in model.parameters()] == [id(p) for p in parameters]
    assert model[0].out_features == model[0].weight.shape[0] == model[1].num_features == 4
    ist.gather()
    assert model[0].out_features == model[0].weight.shape[0] == 8
    step(model, optimizer, batches(1, 6, 3)[0])  # plain training goes on


@pytest.mark.parametrize("limit", [1, 4096])
def test_weights_travel_in_parts_where_they_are_large(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    joinsum.init(sites=3)
    results = []
    for most in (1 << 40, limit):
        monkeypatch.setattr("joinsum.ist.exchange.TOGETHER_BYTES", most)
        monkeypatch.setattr("joinsum.ist.ist.TOGETHER_BYTES", most)
        model = mlp(6, 9, 20, 3)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        ist = joinsum.IST(model, optimizer, every=2)
        for batch in batches(15, 6, 3):
            step(model, optimizer, batch)
        results.append(ist.gather().state_dict())
    for name, wanted in results[0].items():
        assert torch.equal(results[1][name], wanted), name


@pytest.mark.parametrize("sites", [1, 3])
def test_a_model_without_memory_is_cut_tensor_by_tensor(sites: int) -> None:
    joinsum.init(sites=sites)
    plain = mlp(200, 180, 100, 5)
    with joinsum.init_empty():
        model = mlp(200, 180, 100, 5)
    assert model[0].weight.is_meta
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    ist = joinsum.IST(model, optimizer, every=1)
    for batch in batches(2 * sites, 200, 5):
        step(model, optimizer, batch)
    ist.gather()
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name
    other = nn.Sequential(nn.Linear(4, 8, device="meta"), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    assert "init_empty" in refused(other)


def test_rounds_of_the_loops_own_length() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=None)
    for count in (4, 7):
        with ist.round():
            for batch in batches(count, 6, 3):
                step(model, optimizer, batch)
    assert (ist.rounds, ist.site) == (2, 0)


def test_an_error_in_the_loop_leaves_the_block_as_it_is() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ZeroDivisionError), joinsum.IST(model, optimizer) as ist:
        raise ZeroDivisionError
    assert model[0].weight.shape == (4, 6)
    assert ist.gather()[0].weight.shape == (8, 6)


class Masked(nn.Module):
    """A transformer's embedding and head in one, a mask of infinities, a counter that its forward pass writes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embedding, self.head = nn.Embedding(20, 12), nn.Linear(12, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.norm1, self.up, self.down, self.norm2 = (
            nn.LayerNorm(12),
            nn.Linear(12, 24),
            nn.Linear(24, 12),
            nn.LayerNorm(12),
        )
        self.register_buffer("mask", torch.triu(torch.full((5, 5), -torch.inf), 1))
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        self.mean = 0.9 * self.mean + 0.1 * x.detach().mean()
        x = x + self.down(nn.functional.gelu(self.up(self.norm1(x))))
        return self.head(self.norm2(x))


def test_tied_weights_masks_and_written_buffers_of_uncut_modules(tmp_path: Path) -> None:
    joinsum.init(sites=3)
    model, plain = Masked(), Masked()
    joinsum.ist.discovery.find_layers(model, False, None)
    assert type(model.mean) is torch.Tensor  # tracing has left nothing behind
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randint(0, 20, (3, 5))).square().mean().backward()
        optimizer.step()
    with ist.full() as full:
        assert full.head.weight is full.embedding.weight
    ist.save_checkpoint(tmp_path)
    ist.gather()
    assert torch.equal(model.mask, plain.mask)
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


def test_a_parameter_that_is_unfrozen_is_averaged_from_then_on() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    model[3].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ist = joinsum.IST(model, optimizer, every=1)
    found = []
    for number, batch in enumerate(batches(6, 6, 3)):
        if number == 2:
            model[3].bias.requires_grad_(True)
        step(model, optimizer, batch)
        if number >= 4:
            found.append(model[3].bias.detach().clone())
    assert ist.rounds == 3
    assert torch.equal(found[-1], model[3].bias)
    ist._subnets.next_turn()
    assert torch.equal(found[-1], model[3].bias)


def test_a_reset_optimizer_of_any_kind_ends_in_the_middle_of_a_round() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    with joinsum.IST(model, optimizer, every=2, state="reset"):
        for batch in batches(6, 6, 3):
            step(model, optimizer, batch)
    assert model[0].weight.shape == (8, 6)
    step(model, optimizer, batches(1, 6, 3)[0])


def test_files_of_an_earlier_loss_do_not_count(tmp_path: Path) -> None:
    joinsum.init(sites=4)
    model, plain = mlp(6, 9, 20, 3), mlp(6, 9, 20, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
    ist = joinsum.IST(model, optimizer, every=2, buddy=True)
    for batch in batches(4, 6, 3):  # in the middle of the first round
        step(model, optimizer, batch)
    earlier = b""
    for sites, lost in ((4, 3), (3, 1)):
        ist.save_survivor(tmp_path)
        (tmp_path / f"site_{lost}.pt").unlink()
        if earlier:  # what the lost site wrote at the first loss
            (tmp_path / "site_1.pt").write_bytes(earlier)
        earlier = (tmp_path / "site_1.pt").read_bytes()
        joinsum.init(sites=sites - 1)
        model = mlp(6, 9, 20, 3, seed=5)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        ist = joinsum.IST(model, optimizer, every=2, buddy=True)
        ist.load_survivors(tmp_path)
        for batch in batches(3 * (sites - 1), 6, 3):
            step(model, optimizer, batch)
    ist.gather()
    for (name, found), wanted in zip(model.named_parameters(), plain.parameters(), strict=True):
        assert torch.equal(found, wanted), name


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(model: nn.Module, optimizer: Optimizer | None = None, sites: int = 2, **options: Any) -> str:
    joinsum.init(sites=sites)
    with pytest.raises(joinsum.PlanError) as caught:
        joinsum.IST(model, optimizer or torch.optim.SGD(model.parameters(), lr=0.1), **options)
    return str(caught.value)


def test_what_cannot_be_cut_is_refused_by_name() -> None:
    assert "producer=0, consumer=2" in refused(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    assert "0: they reach the output" in refused(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))
    assert "layer=0, neurons=3, sites=4" in refused(mlp(4, 3, 2), sites=4)
    tied = mlp(4, 4, 4, 2)
    tied[3].weight = tied[0].weight
    assert "parameter=0.weight" in refused(tied)
    assert "module='head'" in refused(mlp(4, 8, 2), layers=[("0", "1", "head")])
    assert "module=2, kind=ReLU" in refused(mlp(4, 8, 2), layers=[("0", "1", "2")])
    assert "producer=0, consumer=3" in refused(mlp(4, 8, 2), layers=[("0", (), "3")])
    other = nn.Linear(2, 2)
    assert "shapes=[[2, 2], [2]]" in refused(mlp(4, 8, 2), torch.optim.SGD(other.parameters(), lr=0.1))
    assert "layers=[]" in refused(mlp(4, 8, 2), layers=[])
    assert 'homes="fixed"' in refused(mlp(4, 8, 2), buddy=True, homes="fixed")
    part = mlp(4, 8, 2)
    assert "parameter=0.weight" in refused(part, torch.optim.SGD(part[1:].parameters(), lr=0.1))
    computed = mlp(4, 8, 2)
    nn.utils.parametrizations.weight_norm(computed[0])
    assert "tensor=0.weight" in refused(computed)
    lazy = nn.Sequential(nn.LazyLinear(8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    assert "parameter=0.weight" in refused(lazy)
    assert "every=0" in refused(mlp(4, 8, 2), every=0)
    assert "state='keep'" in refused(mlp(4, 8, 2), state="keep")
    assert "homes='here'" in refused(mlp(4, 8, 2), homes="here")
    assert "wire=torch.int8" in refused(mlp(4, 8, 2), wire=torch.int8)
    assert 'homes="fixed"' in refused(mlp(4, 8, 2), wire=torch.bfloat16, homes="fixed")
    placed = mlp(4, 8, 2)
    trained = joinsum.train_step(placed, nn.functional.cross_entropy, torch.optim.SGD(placed.parameters(), lr=0.1))
    trained(torch.ones(4, 4), torch.zeros(4, dtype=torch.long))
    assert "joinsum.gather(model) first: parameter=0.weight" in refused(placed)


def test_an_optimizer_that_is_not_elementwise_is_refused_by_name_or_reset() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    optimizer = torch.optim.Adafactor(model.parameters(), lr=0.01)
    with pytest.raises(joinsum.PlanError, match="optimizer=Adafactor, state=row_var"):
        joinsum.IST(model, optimizer)
    ist = joinsum.IST(model, optimizer, every=1, state="reset")
    for batch in batches(4, 6, 3):
        step(model, optimizer, batch)
    assert ist.rounds == 2


def test_the_subnets_tensors_are_not_saved_as_the_models() -> None:
    joinsum.init(sites=2)
    model = mlp(6, 8, 3)
    ist = joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match="save_checkpoint"):
        model.state_dict()
    for part in (ist.optimizer, model[0]):
        with pytest.raises(joinsum.PlanError, match="save_checkpoint"):
            part.state_dict()
    with pytest.raises(joinsum.PlanError, match="copy or average the full one"):
        copy.deepcopy(model)
    with pytest.raises(joinsum.PlanError, match="has subnets already"):
        joinsum.IST(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(joinsum.PlanError, match="site=2, sites=2"):
        ist.neurons("0", 2)
    ist.gather()
    assert model.state_dict()["0.weight"].shape == (8, 6)
    with pytest.raises(joinsum.PlanError, match="has ended"):
        ist.end_round()
