"""joinsum.einsum from several threads of one process."""

from __future__ import annotations

import subprocess
import sys
import threading

import joinsum
import torch

# Six threads, each with its own and with common shapes. Tensors that Python knows are freed by joinsum's store.
PROGRAM = """
import threading, torch, joinsum

joinsum.init(sites=2, plan_cache=False)
wrong = []


def work(columns):
    for turn in range(200):
        x = torch.randn(turn % 7 + 1, 3, dtype=torch.float64, requires_grad=True)
        y = torch.randn(3, columns % 3 + 1, dtype=torch.float64)
        z = joinsum.einsum("ij,jk->ik", x, y)
        z.sum().backward()
        if not torch.allclose(z, x @ y) or not torch.allclose(x.grad, y.sum(1).expand_as(x)):
            wrong.append((turn, columns))


threads = [threading.Thread(target=work, args=(columns,)) for columns in range(6)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("wrong:", wrong)
"""


def test_threads_neither_wait_for_each_other_forever_nor_mix_their_results() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "wrong: []\n"


def test_threads_may_use_more_plans_than_are_cached() -> None:
    current = joinsum.init(plan_cache=False)
    failed: list[Exception] = []

    def work(thread: int) -> None:
        try:
            for key in range(2000):
                assert current.cached((thread, key), lambda: key) == key  # noqa: B023
        except Exception as error:
            failed.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(thread,)) for thread in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failed


def test_threads_have_their_own_torch_settings() -> None:
    joinsum.init(sites=2, plan_cache=False)
    x = torch.ones(2, 2, requires_grad=True)
    recorded: list[bool] = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: recorded.append(joinsum.einsum("ij->ji", x).requires_grad))
        thread.start()
        thread.join()
        recorded.append(joinsum.einsum("ij->ji", x).requires_grad)
    assert recorded == [True, False]
