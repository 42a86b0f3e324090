"""The hosts, layout and libraries that measurements and plans are valid for."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from joinsum import _C
from joinsum.base.version import JOINSUM_VERSION

__all__ = ["Machine", "Sites", "machine_of"]


class Sites(Protocol):
    """What is read of the context of the sites."""

    @property
    def local_sites(self) -> list[int]: ...

    @property
    def single_process(self) -> bool: ...

    @property
    def grid(self) -> _C.Grid: ...

    @property
    def transport(self) -> _C.Transport: ...

    @property
    def device(self) -> torch.device: ...


@dataclass(frozen=True)
class Machine:
    """What a calibration or a cached plan is valid for.

    sites       for each site its host, processor, cores, threads and device
    layout      the sites as a grid, the transport, which pairs of sites share memory (all, some, none), and the network
                interface that the environment names
    libraries   versions of joinsum and torch
    """

    sites: tuple[str, ...]
    layout: tuple[tuple[str, str], ...]
    libraries: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """As the file holds it."""
        return {"sites": list(self.sites), "layout": dict(self.layout), "libraries": dict(self.libraries)}

    @property
    def name(self) -> str:
        """The file's name: by sites and layout, so that other versions of the libraries are noticed."""
        text = json.dumps([list(self.sites), sorted(self.layout)])
        return f"calibration-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def most_on_a_host(self) -> int:
        """Sites on the host that has most of them."""
        hosts = [site.split(": ")[0] for site in self.sites]
        return max(map(hosts.count, hosts))

    def difference(self, other: Machine) -> str | None:
        """How `other`, a file's machine, is not this one; None if it is."""
        for i, (own, others) in enumerate(zip(self.sites, other.sites, strict=False)):
            if own != others:
                return f"another machine: site={i}, file={others}, here={own}"
        if len(self.sites) != len(other.sites):
            return f"another number of sites: file={len(other.sites)}, here={len(self.sites)}"
        for what, mine, theirs in (
            ("another layout", self.layout, other.layout),
            ("stale, libraries have changed", self.libraries, other.libraries),
        ):
            names = sorted({name for name, _ in set(mine) ^ set(theirs)})
            if names:
                name = names[0]
                return f"{what}: {name}: file={dict(theirs).get(name)}, here={dict(mine).get(name)}"
        return None


def machine_of(sites: Sites) -> Machine:
    """The machine that the sites are; collective, and equal on all ranks."""
    backend = sites.transport.name
    layout = {
        "grid": str(sites.grid),
        "transport": backend,
        "shared memory": sites.transport.shared_memory.name,
        "own sockets": str(sites.transport.own_sockets),
        "interface": os.environ.get("GLOO_SOCKET_IFNAME" if backend == "gloo" else "NCCL_SOCKET_IFNAME", ""),
    }
    versions = (("joinsum", JOINSUM_VERSION), ("torch", torch.__version__))
    texts = sites.transport.gather_texts("calibration", _site_text(sites.device))
    return Machine(tuple(texts), tuple(sorted(layout.items())), versions)


def _site_text(device: torch.device) -> str:
    """This process's host and device."""
    threads = f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return f"{platform.node()}: {processor}, {threads}"


def _processor() -> str:
    """The processor's name, if the system reports it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
