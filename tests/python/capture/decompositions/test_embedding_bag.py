"""Bags of embeddings beside torch's: values, gradients, and models that train with them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import joinsum
import pytest
import torch
import torch.nn.functional as F
from joinsum.capture.decompositions.embedding_bag import embedding_bag
from torch import Tensor, nn
from training import CUTTING, EVERYTHING

WORDS, WIDTH = 11, 8
STARTS = torch.tensor([0, 3, 3, 9, 12, 18])  # the second bag is empty

# In the bags of these, some words occur twice, and the third and fifth bag are padding alone.
ROWS = torch.tensor([[4, 4, 7, 0, 1], [3, 9, 1, 10, 5], [1, 1, 1, 1, 1], [8, 2, 2, 6, 0], [1, 1, 1, 1, 1]])
LIST = torch.tensor([4, 4, 7, 0, 1, 3, 9, 1, 10, 1, 1, 1, 8, 2, 2, 6, 0, 5, 1, 7])

Both = Callable[..., Tensor]


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    yield
    torch._dynamo.reset()  # graphs are for the sites that they were compiled for
    joinsum.init()


def gradients(function: Both, words: Tensor, table: Tensor, weights: Tensor | None, **options: Any) -> list[Tensor]:
    """The bags, and the gradients of table and weights."""
    given = [each.clone().requires_grad_() for each in (table, weights) if each is not None]
    bags = function(words, given[0], per_sample_weights=None if weights is None else given[1], **options)
    seed = torch.arange(bags.numel(), dtype=bags.dtype).reshape(bags.shape) / 16
    return [bags, *torch.autograd.grad(bags, given, seed)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("padding", [None, 1, 1 - WORDS])
@pytest.mark.parametrize("offsets", ["none", "starts", "with the last"])
@pytest.mark.parametrize("mode", ["sum", "weighted sum", "mean", "max"])
def test_bags_and_their_gradients(mode: str, offsets: str, padding: int | None, dtype: torch.dtype) -> None:
    words = ROWS if offsets == "none" else LIST
    last = offsets == "with the last"
    starts = None if offsets == "none" else torch.cat([STARTS, torch.tensor([len(LIST)])]) if last else STARTS
    table = torch.randn(WORDS, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
    weights = torch.rand(words.shape).to(dtype) if mode == "weighted sum" else None
    options: dict[str, Any] = {
        "offsets": starts,
        "mode": mode.removeprefix("weighted "),
        "include_last_offset": last,
        "padding_idx": padding,
    }
    found, wanted = (gradients(each, words, table, weights, **options) for each in (embedding_bag, F.embedding_bag))
    near = {"rtol": 2e-2, "atol": 5e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    torch.testing.assert_close(found, wanted, **near)


@pytest.mark.parametrize("words", [ROWS, LIST], ids=["rows", "offsets"])
def test_the_first_of_several_greatest_elements_has_the_gradient(words: Tensor) -> None:
    table = torch.zeros(WORDS, WIDTH)
    options = {"mode": "max", "offsets": None if words is ROWS else STARTS}
    found, wanted = (gradients(each, words, table, None, **options) for each in (embedding_bag, F.embedding_bag))
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("words", [ROWS, LIST], ids=["rows", "offsets"])
def test_gradients_by_frequency_are_those_of_lookups(words: Tensor) -> None:
    starts = None if words is ROWS else STARTS

    def looked_up(words: Tensor, table: Tensor, **_: Any) -> Tensor:
        rows = F.embedding(words, table, scale_grad_by_freq=True)
        return rows.sum(1) if starts is None else torch.stack([x.sum(0) for x in rows.tensor_split(STARTS[1:])])

    table = torch.randn(WORDS, WIDTH)
    options = {"mode": "sum", "offsets": starts, "scale_grad_by_freq": True}
    found, wanted = gradients(embedding_bag, words, table, None, **options), gradients(looked_up, words, table, None)
    torch.testing.assert_close(found, wanted)


# --- captured ---------------------------------------------------------------------------------------------------------


class Bags(nn.Module):
    """Scores of bags of one length and of bags of any length, of the rows of two tables."""

    def __init__(self, mode: str, padding: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rows = nn.EmbeddingBag(WORDS, WIDTH, mode=mode, padding_idx=padding)
        self.lists = nn.EmbeddingBag(WORDS, WIDTH, mode=mode, padding_idx=padding, include_last_offset=True)
        self.head = nn.Linear(2 * WIDTH, 3)

    def forward(self, batch: dict[str, Tensor | None]) -> Tensor:
        rows = self.rows(batch["rows"], None, batch["weights of rows"])
        lists = self.lists(batch["list"], batch["offsets"], batch["weights of the list"])
        return self.head(torch.cat([rows, lists], 1))


def batches(weighted: bool) -> list[tuple[dict[str, Tensor | None], Tensor]]:
    """Three steps' bags and classes."""
    generator = torch.Generator().manual_seed(1)
    found = []
    for step in range(3):
        weights = [torch.rand(x.shape, generator=generator) if weighted else None for x in (ROWS, LIST)]
        batch = {
            "rows": (ROWS + step * (ROWS != 1)) % WORDS,
            "list": LIST.roll(step),
            "offsets": torch.cat([STARTS[:2], STARTS[3:], torch.tensor([len(LIST)])]),
            "weights of rows": weights[0],
            "weights of the list": weights[1],
        }
        found.append((batch, torch.randint(3, (5,), generator=generator)))
    return found


def train(model: nn.Module, run: Callable[..., Tensor], weighted: bool) -> list[float]:
    """Losses of the user's loop."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for batch, classes in batches(weighted):
        optimizer.zero_grad()
        loss = F.cross_entropy(run(batch), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_planned(model: nn.Module, entry: str, weighted: bool) -> tuple[list[float], dict[str, Tensor]]:
    """Losses, and the parameters afterwards, by one of joinsum's entry points."""
    data = batches(weighted)
    if entry == "train_step":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
        step = joinsum.train_step(model, F.cross_entropy, optimizer)
        losses = [step(*batch).item() for batch in data]
        step.sync()
        return losses, model.state_dict()
    if entry == "compile":
        return train(model, torch.compile(model, backend="joinsum", fullgraph=True), weighted), model.state_dict()
    distributed = joinsum.distribute(model, (data[0][0],))
    return train(distributed, distributed, weighted), joinsum.full_state_dict(distributed)


@pytest.mark.parametrize("sites", [1, 2, 4] if EVERYTHING else [1, 4])
@pytest.mark.parametrize("entry", ["train_step", "compile", "distribute"])
@pytest.mark.parametrize(("mode", "padding"), [("sum", None), ("mean", 1), ("max", 1)])
def test_models_train_as_by_torch(mode: str, padding: int | None, entry: str, sites: int) -> None:
    joinsum.init(sites=sites, cluster=CUTTING, plan_cache=False)
    plain = Bags(mode, padding)
    model = copy.deepcopy(plain)
    weighted = mode == "sum"
    losses, state = train_planned(model, entry, weighted)
    assert losses == pytest.approx(train(plain, plain, weighted), rel=1e-5)
    for name, wanted in plain.state_dict().items():
        torch.testing.assert_close(state[name], wanted, rtol=1e-5, atol=1e-6, msg=name)


def test_one_plan_serves_bags_of_any_lengths() -> None:
    joinsum.init(sites=2, plan_cache=False)
    model = nn.EmbeddingBag(WORDS, WIDTH, mode="sum")
    run = torch.compile(model, backend="joinsum", fullgraph=True)
    for starts in ([0, 4, 9], [0, 0, 7], [0, 1, 2, 3, 19]):
        offsets = torch.tensor(starts)
        torch.testing.assert_close(run(LIST, offsets), model(LIST, offsets))
    torch.testing.assert_close(run(LIST[:13], offsets[:3]), model(LIST[:13], offsets[:3]))


def test_autocast_does_not_change_bags() -> None:
    joinsum.init(sites=2, plan_cache=False)
    table = torch.randn(WORDS, WIDTH)

    @joinsum.compile
    def weighted(words: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(words, table, mode="sum", per_sample_weights=weights)

    weights = torch.rand(ROWS.shape)
    with torch.autocast("cpu", torch.bfloat16):
        found = weighted(ROWS, weights)
    torch.testing.assert_close(found, F.embedding_bag(ROWS, table, mode="sum", per_sample_weights=weights))


def test_bags_of_rows_are_divided_without_a_message() -> None:
    joinsum.init(sites=4, cluster=CUTTING, plan_cache=False)
    table = torch.randn(WORDS, 64)

    @joinsum.compile
    def found(words: Tensor) -> Tensor:
        return F.embedding_bag(words, table, mode="mean")

    words = torch.randint(WORDS, (64, 20))
    torch.testing.assert_close(found(words), F.embedding_bag(words, table, mode="mean"))
    gathered = 3 * 64 * 64 * 4  # of the result, which every site has
    assert sum(entry.bytes_sent for entry in joinsum.trace()) == gathered


@pytest.mark.parametrize("sites", [1, 2])
@pytest.mark.parametrize(
    ("offsets", "last", "said"),
    [
        ([1, 3], False, "from 0 to at most the number of indices"),
        ([0, 7, 3], False, "from 0 to at most the number of indices"),
        ([0, 30], False, "from 0 to at most the number of indices"),
        ([0, 7, 19], True, "from 0 to the number of indices"),
    ],
)
def test_offsets_that_do_not_fit_are_refused(offsets: list[int], last: bool, said: str, sites: int) -> None:
    joinsum.init(sites=sites, plan_cache=False)
    run = joinsum.compile(nn.EmbeddingBag(WORDS, WIDTH, mode="sum", include_last_offset=last))
    with pytest.raises(RuntimeError, match=f"embedding_bag: offsets grow {said}"):
        run(LIST, torch.tensor(offsets))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_norm": 1.0}, "a lookup in a captured table does not scale its rows: operator=embedding_bag, "),
    ],
)
def test_what_cannot_be_captured_is_refused_with_module_line_and_remedy(options: dict[str, Any], said: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bags = nn.EmbeddingBag(WORDS, WIDTH, mode="sum", **options)

        def forward(self, words: Tensor) -> Tensor:
            return self.bags(words)

    joinsum.init(sites=2)
    with pytest.raises(joinsum.CaptureError, match=said) as raised:
        joinsum.distribute(Model(), (ROWS,))(ROWS)
    assert "return self.bags(words)" in str(raised.value)
    assert "leave " in str(raised.value)
