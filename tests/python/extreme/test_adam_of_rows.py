"""Adam on the rows of W1 that batches touch, against Adam on all rows in every step."""

from __future__ import annotations

import math
from collections.abc import Iterator

import joinsum
import pytest
import torch
from joinsum.extreme.classifier import Classifier, Sizes, Training
from torch import Tensor

OPERATORS = torch.ops.joinsum
CONSTANTS = (0.05, 0.9, 0.99, 1e-8)


@pytest.fixture(autouse=True)
def _one_site_afterwards() -> Iterator[None]:
    joinsum.init()
    yield
    joinsum.init()


def batch(seed: int, points: int = 6, features: int = 40, density: float = 0.06) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(points, features, generator=generator)
    return x * (torch.rand(points, features, generator=generator) < density), torch.randn(
        points, 5, generator=generator
    )


def state(features: int = 40) -> list[Tensor]:
    generator = torch.Generator().manual_seed(9)
    return [torch.randn(features, 5, generator=generator), torch.zeros(features, 5), torch.zeros(features, 5)]


def adam(weight: Tensor, first: Tensor, second: Tensor, grad: Tensor, step: int) -> None:
    """One step, in place and in double precision."""
    rate, beta1, beta2, eps = CONSTANTS
    first.mul_(beta1).add_(grad, alpha=1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    weight.sub_(rate * (first / (1 - beta1**step)) / ((second / (1 - beta2**step)).sqrt() + eps))


@pytest.mark.parametrize("steps", [1, 2, 30, 400])
def test_rows_are_those_of_adam_on_all_rows(steps: int) -> None:
    rows, done = state(), torch.zeros(40, dtype=torch.int64)
    exact = [x.double() for x in rows]
    for step in range(1, steps + 1):
        # Rarely anything: rows rest for hundreds of steps.
        x, slopes = batch(step, density=0.06 if steps < 400 else 0.002)
        number = torch.tensor(float(step))
        *rows, done = OPERATORS.adam_rows_catch_up(*rows, done, x.to_sparse(), number, *CONSTANTS)
        *rows, done = OPERATORS.adam_rows_update(*rows, done, x.to_sparse(), slopes, number, *CONSTANTS)
        adam(*exact, x.double().T @ slopes.double(), step)
        touched = (x != 0).any(0)
        assert (done[touched] == step).all()
        torch.testing.assert_close(rows[0][touched].double(), exact[0][touched], rtol=1e-4, atol=1e-4)
    every = torch.ones(1, 40).to_sparse()
    *rows, done = OPERATORS.adam_rows_catch_up(*rows, done, every, torch.tensor(steps + 1.0), *CONSTANTS)
    for found, wanted in zip(rows, exact, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)
    assert (done == steps).all()


def test_a_run_into_given_arrays_overwrites_them() -> None:
    x, slopes = batch(1, density=0.3)
    number, done = torch.tensor(1.0), torch.zeros(40, dtype=torch.int64)
    wanted = OPERATORS.adam_rows_update(*state(), done, x.to_sparse(), slopes, number, *CONSTANTS)
    own = [*state(), done]
    given = dict(zip(("param_out", "exp_avg_out", "exp_avg_sq_out", "done_out"), own, strict=True))
    OPERATORS.adam_rows_update.out(*own, x.to_sparse(), slopes, number, *CONSTANTS, **given)
    for found, want in zip(own, wanted, strict=True):
        assert torch.equal(found, want)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, slopes = torch.rand(50, 3000) * (torch.rand(50, 3000) < 0.2), torch.randn(50, 5)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        done = torch.zeros(3000, dtype=torch.int64)
        results.append(
            OPERATORS.adam_rows_update(*state(3000), done, x.to_sparse(), slopes, torch.tensor(1.0), *CONSTANTS)
        )
    torch.set_num_threads(before)
    for others in results[1:]:
        assert all(map(torch.equal, results[0], others))


@pytest.mark.parametrize("sites", [1, 2, 3, 5])
def test_a_classifier_of_sparse_features_has_the_weights_of_a_dense_one(sites: int) -> None:
    joinsum.init(sites=sites)
    sizes, training = Sizes(6, 40, 5, 7, 14), Training(rate=0.05)
    sparse, dense = Classifier(sizes, "model", training), Classifier(sizes._replace(entries=None), "model", training)
    y = (torch.rand(6, 7) < 0.3).float()
    for step in range(25):
        x, _ = batch(step)
        assert sparse.step(x.to_sparse(), y) == pytest.approx(dense.step(x, y), rel=1e-4)
        if step % 8 == 3:  # scores and states between steps change nothing
            torch.testing.assert_close(sparse.scores(x.to_sparse()), dense.scores(x), rtol=1e-4, atol=1e-4)
        if step == 12:
            sparse.load_state_dict(sparse.state_dict())
    found, wanted = sparse.state_dict(), dense.state_dict()
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], rtol=1e-3, atol=1e-4, msg=name)


def test_a_step_overwrites_its_state() -> None:
    classifier = Classifier(Sizes(6, 40, 5, 7, 14), "model")
    x, y = batch(0)[0].to_sparse(), torch.zeros(6, 7)
    for _ in range(3):
        classifier.step(x, y)
    before = {name: [b.data_ptr() for b in stored.blocks()] for name, stored in classifier._state.items()}
    classifier.step(x, y)
    assert before == {name: [b.data_ptr() for b in stored.blocks()] for name, stored in classifier._state.items()}


def test_an_empty_batch_moves_nothing_but_later_rows_know_of_it() -> None:
    classifier, dense = (Classifier(Sizes(6, 40, 5, 7, e), "model") for e in (14, None))
    y = torch.zeros(6, 7)
    for x in (batch(0)[0], torch.zeros(6, 40), torch.zeros(6, 40), batch(0)[0]):
        assert math.isclose(classifier.step(x.to_sparse(), y), dense.step(x, y), rel_tol=1e-5)
    torch.testing.assert_close(classifier.state_dict()["W1"], dense.state_dict()["W1"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("betas", [(0.9, 0.85), (0.9, 0.8), (0.95, 0.9), (0.5, 0.999), (0.0, 0.9)])
def test_rows_that_rest_for_long_move_as_step_by_step(betas: tuple[float, float]) -> None:
    constants, every = (0.05, *betas, 1e-8), torch.ones(1, 40).to_sparse()
    x, slopes = batch(1, density=0.5)
    *start, done = OPERATORS.adam_rows_update(
        *state(), torch.zeros(40, dtype=torch.int64), x.to_sparse(), slopes, torch.tensor(1.0), *constants
    )
    stepwise, done_stepwise = start, done
    for step in range(2, 1002):
        *stepwise, done_stepwise = OPERATORS.adam_rows_catch_up(
            *stepwise, done_stepwise, every, torch.tensor(float(step)), *constants
        )
    *at_once, _ = OPERATORS.adam_rows_catch_up(*start, done, every, torch.tensor(1001.0), *constants)
    for found, wanted in zip(at_once, stepwise, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_features_fit_the_weight() -> None:
    x, slopes = batch(1)
    wide, done = torch.ones(6, 50).to_sparse(), torch.zeros(40, dtype=torch.int64)
    number = torch.tensor(1.0)
    for features, given in ((wide, slopes), (x.to_sparse(), slopes[:3]), (x.to_sparse(), slopes[:, :2])):
        with pytest.raises(RuntimeError, match="adam_rows"):
            OPERATORS.adam_rows_update(*state(), done, features, given, number, *CONSTANTS)
    with pytest.raises(RuntimeError, match="last step"):
        OPERATORS.adam_rows_catch_up(*state(), done[:7], x.to_sparse(), number, *CONSTANTS)
