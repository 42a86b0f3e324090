"""`joinsum doctor`."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import click

__all__ = ["doctor"]

_SECONDS = 120
# What one rank of a trial does: a product whose operands must move, compared with torch's. Prints which ranks share
# memory.
_TRIAL = """
import sys, torch, joinsum
ranks, device = int(sys.argv[1]), sys.argv[2]
if device == "loopback":
    joinsum.init(sites=ranks)
else:
    joinsum.init(cluster=joinsum.Cluster())
where = joinsum.context().device
x = torch.arange(64.0, device=where).reshape(8, 8)
left = joinsum.relation(x, parts=(4, 4))
product = left.join(left, on=([1], [0]), kernel="matmul").aggregate(keep=[0, 2])
assert torch.equal(product.to_tensor().cpu(), (x @ x).cpu())
print(joinsum.context().transport.shared_memory.name)
"""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report.

    state    ok, missing (joinsum works without it) or broken (it does not)
    remedy   what to do, where it is not ok
    """

    what: str
    state: str
    found: str
    remedy: str = ""


@click.command()
def doctor() -> None:
    """Tell what is installed, try each transport, and name what is missing with its remedy.

    Ends with 1 if something that joinsum needs does not work.
    """
    state = "ok"
    for finding in findings():
        click.echo(f"{finding.state:8} {finding.what}: {finding.found}")
        if finding.remedy:
            click.echo(f"{'':8} remedy: {finding.remedy}")
        state = "broken" if finding.state == "broken" else state
    sys.exit(1 if state == "broken" else 0)


def findings() -> Iterator[Finding]:
    """The report, line by line as it is found out."""
    yield Finding("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    for check in (_joinsum, _torch, _loopback, _gloo, _nccl, _calibration, _products, _libraries):
        found = check()
        yield from [found] if isinstance(found, Finding) else found


def _joinsum() -> Finding:
    remedy = "reinstall it: pip install --no-build-isolation --force-reinstall --no-deps joinsum"
    try:
        import joinsum
    except Exception as error:
        return Finding("joinsum", "broken", str(error), remedy)
    return Finding("joinsum", "ok", f"{joinsum.__version__} in {os.path.dirname(joinsum.__file__)}")


def _torch() -> Finding:
    try:
        import torch
    except Exception as error:
        return Finding("torch", "broken", str(error), "install a supported release: pip install 'torch>=2.11,<2.14'")
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(i) for i in range(devices))
    return Finding(
        "torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {names or 'no CUDA device'}"
    )


def _loopback() -> Finding:
    problem, _ = _tried(1, [sys.executable, "-c", _TRIAL, "4", "loopback"], {})
    if problem:
        return Finding("loopback", "broken", problem, "please report this, with all of what this command prints")
    return Finding("loopback", "ok", "4 sites in one process multiply matrices")


def _gloo() -> Finding:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return Finding("gloo", "missing", "torch is built without it", "install a torch with distributed support")
    problem, shared = _tried_group(2, "cpu")
    if problem:
        remedy = "name the interface that sites reach each other by, as in GLOO_SOCKET_IFNAME=lo, and open its ports"
        return Finding("gloo", "missing", problem, remedy)
    done = "2 processes multiply matrices"
    if shared == "all":
        return Finding("gloo", "ok", f"{done}, through shared memory")
    if os.environ.get("JOINSUM_SHARED_MEMORY") == "0":
        return Finding("gloo", "ok", f"{done}, through sockets, as JOINSUM_SHARED_MEMORY=0 says")
    remedy = "sockets are slower: permit memfd_create and, between processes of one user, /proc/PID/fd"
    return Finding("gloo", "ok", f"{done}, through sockets, as the system lets them share no memory", remedy)


def _nccl() -> Finding:
    import torch
    import torch.distributed as dist

    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if devices == 0:
        return Finding("nccl", "missing", "no CUDA device", "needed for GPUs only: install a driver and a CUDA torch")
    if not dist.is_available() or not dist.is_nccl_available():
        return Finding("nccl", "missing", "torch is built without it", "install a CUDA build of torch")
    ranks = min(devices, 2)
    problem, _ = _tried_group(ranks, "cuda")
    if problem:
        return Finding("nccl", "missing", problem, "NCCL_DEBUG=INFO says more; GPUs must reach each other")
    return Finding("nccl", "ok", f"{ranks} GPU{'s' if ranks > 1 else ''} multiply matrices")


def _calibration() -> Finding:
    import joinsum
    from joinsum.cluster.cache_folder import cache_folder

    files = sorted(cache_folder().glob("calibration-*.json"))
    if files:
        return Finding("calibration", "ok", ", ".join(map(str, files)))
    name = joinsum.Cluster().name
    remedy = "measure the sites: joinsum calibrate, under torchrun for several processes"
    return Finding("calibration", "missing", f"none; costs are for the default cluster: {name}", remedy)


def _products() -> Finding:
    from joinsum import _C

    if not _C.openblas_suits_processor():
        return Finding("products", "ok", "torch's library multiplies large matrices")
    if _C.openblas_is_faster():
        return Finding("products", "ok", "OpenBLAS multiplies large matrices, as MKL is slower on this processor")
    if os.environ.get("JOINSUM_OPENBLAS") == "0":
        return Finding("products", "ok", "MKL multiplies large matrices, as JOINSUM_OPENBLAS=0 says")
    remedy = "pip install --force-reinstall scipy-openblas32"
    return Finding("products", "missing", "OpenBLAS, which is faster than MKL on this processor", remedy)


def _libraries() -> Iterator[Finding]:
    """What pip installs with joinsum."""
    for name in ("numpy", "rich", "click", "matplotlib"):
        try:
            yield Finding(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "broken", "not installed", f"pip install {name}")


def _tried_group(ranks: int, device: str) -> tuple[str, str]:
    """Runs the trial on a process group; returns the problem, or nothing, and what a rank printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    return _tried(ranks, [sys.executable, "-c", _TRIAL, str(ranks), device], group | hidden)


def _tried(ranks: int, command: list[str], group: dict[str, str]) -> tuple[str, str]:
    """Starts a process for each rank; returns the last line of the first that fails, or nothing, and what the first one
    printed."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    processes = []
    for rank in range(ranks):
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)} if group else {}
        processes.append(
            subprocess.Popen(
                command, env=inherited | group | own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    ends = [_end_of(process) for process in processes]
    return next((problem for problem, _ in ends if problem), ""), ends[0][1]


def _end_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """The problem, or nothing, and what it printed."""
    try:
        printed, output = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"no end within {_SECONDS} s", ""
    lines = [line for line in output.splitlines() if line.strip()]
    if process.returncode == 0:
        return "", printed.strip()
    return lines[-1] if lines else f"ended with {process.returncode}", ""
