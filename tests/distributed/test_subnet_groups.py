"""Independent subnet training on four ranks: all of them, and groups of two beside each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist
from launch import Play, play

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.skipif(not dist.is_available() or not dist.is_gloo_available(), reason="torch has no gloo"),
]

LIMIT = 150


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Play:
    scenes = ["subnets.a_group_trains_what_loopback_trains", "subnet_groups"]
    return play(4, scenes, tmp_path_factory.mktemp("subnet_groups"), LIMIT)


def test_four_ranks_train_what_four_loopback_sites_train(played: Any) -> None:
    assert len({*played.values("a_group_trains_what_loopback_trains")}) == 1


def test_each_row_of_a_mesh_trains_its_own_model(played: Any) -> None:
    played.values("each_row_of_a_mesh_trains_what_two_loopback_sites_train")


def test_groups_that_do_not_fit_are_refused(played: Any) -> None:
    for texts in played.values("groups_that_do_not_fit_are_refused"):
        wanted = ["pick one, as in mesh['dp']", "a group is a ProcessGroup or a DeviceMesh", "this process is not in"]
        assert [part in text for part, text in zip(wanted, texts, strict=False)] == [True] * len(texts)


def test_a_group_is_set_up_without_the_other_ranks(played: Any) -> None:
    played.values("a_group_that_is_the_first_to_be_set_up_waits_for_no_other_rank")
