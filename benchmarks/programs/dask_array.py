"""Nearest neighbours and matrix products as Dask arrays: the scheduler and the client, as frame/outside.py describes.

    python benchmarks/programs/dask_array.py product|nearest HOST WORKERS ROWS COLUMNS FOLDER

`address` writes the scheduler's address to the file of that name; `prepare` waits for the workers and stores the
operands there, matrices in ROWS x COLUMNS chunks. A step computes the result, which stays stored on the workers.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import dask.array
import numpy
from distributed import Client, LocalCluster, wait


def product(operands: dict[str, Any]) -> Any:
    return operands["a"] @ operands["b"]


def nearest(operands: dict[str, Any]) -> Any:
    difference = operands["points"] - operands["query"]
    return dask.array.argmin(((difference @ operands["metric"]) * difference).sum(1))


def store(client: Client, path: Path, cuts: list[int]) -> Any:
    """An array on the workers; a vector is one chunk."""
    whole = numpy.load(path)
    chunks = tuple(-(-extent // cut) for extent, cut in zip(whole.shape, cuts, strict=True)) if whole.ndim > 1 else -1
    array = client.persist(dask.array.from_array(whole, chunks=chunks))  # type: ignore[no-untyped-call]
    wait(array)  # type: ignore[no-untyped-call]
    return array


def renamed(operands: dict[str, Any], step: int) -> dict[str, Any]:
    """The smallest operand by another name for each step: what is stored under a name is not computed again."""
    name, array = min(operands.items(), key=lambda item: item[1].size)
    return {name: array.map_blocks(numpy.asarray, dtype=array.dtype, token=f"step-{step}")}


def main() -> None:
    warnings.simplefilter("ignore")
    work = {"product": product, "nearest": nearest}[sys.argv[1]]
    host, workers, cuts, folder = sys.argv[2], int(sys.argv[3]), [int(x) for x in sys.argv[4:6]], Path(sys.argv[6])
    cluster = LocalCluster(n_workers=0, host=host, dashboard_address=None, processes=True)  # type: ignore[no-untyped-call]
    client = Client(cluster)  # type: ignore[no-untyped-call]
    operands: dict[str, Any] = {}
    result: Any = None
    steps = 0
    for line in sys.stdin:
        match line.strip():
            case "address":
                (folder / "address").write_text(cluster.scheduler_address, encoding="utf-8")
            case "prepare":
                client.wait_for_workers(workers)
                operands = {path.stem: store(client, path, cuts) for path in folder.glob("*.npy")}
            case "step":
                steps += 1
                result = client.persist(work({**operands, **renamed(operands, steps)}))  # type: ignore[no-untyped-call]
                wait(result)  # type: ignore[no-untyped-call]
            case "save":
                numpy.save(folder / "result.npy", result.compute())
        print("done", flush=True)


if __name__ == "__main__":
    main()
