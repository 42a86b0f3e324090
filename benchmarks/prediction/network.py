"""A network of namespaces on one machine: one per rank, connected by a bridge, with a limited rate on each link.

Every rank has its own network namespace and one virtual cable (veth) to a bridge. A token bucket (tc's tbf) at both
ends of the cable limits what the rank sends and receives to the link's rate; an open link has no bucket. A connection
may have 128 KiB in flight, several times what such a link holds. With more, acknowledgements wait behind megabytes of
data in the bucket, so that both directions together take three times as long as one; and open links drop packets while
the cores are busy, which costs a fifth of a second each time. It needs root, `ip` and `tc`. Everything is removed when
the `with` block ends, also after an error or Ctrl-C.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

__all__ = ["LINKS", "Missing", "Network", "network"]

# What tc calls the rate, and the bytes that may pass at once; None: no bucket.
LINKS: dict[str, tuple[str, str] | None] = {"open": None, "10gbit": ("10gbit", "256kb"), "1gbit": ("1gbit", "64kb")}
DEVICE = "joinsum0"
_WINDOW = 128 << 10


class Missing(Exception):
    """The machine cannot make namespaces; the text names the remedy."""


@dataclass(frozen=True)
class Network:
    """Namespaces by rank; rank r has address 10.213.77.(r + 1) on its device `joinsum0`."""

    namespaces: tuple[str, ...]

    def address(self, rank: int) -> str:
        """Address of a rank."""
        return f"10.213.77.{rank + 1}"

    def start(
        self, rank: int, command: Sequence[str], environment: Mapping[str, str], **options: int
    ) -> subprocess.Popen[bytes]:
        """Starts `command` as that rank, with the environment variables that torch.distributed reads."""
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": "0",
            "WORLD_SIZE": str(len(self.namespaces)),
            "MASTER_ADDR": self.address(0),
            "MASTER_PORT": "29513",
            "GLOO_SOCKET_IFNAME": DEVICE,
        }
        full = ["ip", "netns", "exec", self.namespaces[rank], *command]
        return subprocess.Popen(full, env={**os.environ, **environment, **own}, start_new_session=True, **options)


def check() -> None:
    """Raises Missing unless namespaces can be made here."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise Missing(f"prediction: `{tool}` is not installed; install iproute2 (apt-get install iproute2)")
    if os.geteuid() != 0:
        raise Missing(f"prediction: network namespaces need root; run as root (sudo): user id={os.geteuid()}")


@contextmanager
def network(ranks: int, link: str) -> Iterator[Network]:
    """Sets up `ranks` namespaces with links of that kind (a key of LINKS) and takes them down again.

    Raises Missing with the machine's error where it cannot make them.
    """
    check()
    tag = f"js{os.getpid() % 100000}"
    names = tuple(f"{tag}r{rank}" for rank in range(ranks))
    bridge = f"{tag}b"
    with _ending_on_sigterm():
        try:
            _call("ip", "link", "add", bridge, "type", "bridge")
            _call("ip", "link", "set", bridge, "up")
            network = Network(names)
            for rank, name in enumerate(names):
                _add_rank(name, bridge, f"{tag}v{rank}", network.address(rank), link)
            yield network
        finally:
            for rank, name in enumerate(names):
                _call("ip", "link", "del", f"{tag}v{rank}", quietly=True)
                _call("ip", "netns", "del", name, quietly=True)
            _call("ip", "link", "del", bridge, quietly=True)


def _add_rank(name: str, bridge: str, cable: str, address: str, link: str) -> None:
    inside = ("ip", "-n", name)
    _call("ip", "netns", "add", name)
    _call("ip", "link", "add", cable, "type", "veth", "peer", "name", DEVICE, "netns", name)
    _call("ip", "link", "set", cable, "master", bridge, "up")
    _call(*inside, "addr", "add", f"{address}/24", "dev", DEVICE)
    _call(*inside, "link", "set", DEVICE, "up")
    _call(*inside, "link", "set", "lo", "up")
    # A link's time should not depend on what its sender saw before, as with a congestion control that keeps a model.
    _call("ip", "netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
    for memory in ("rmem", "wmem"):
        limits = f"echo 4096 {_WINDOW} {_WINDOW} > /proc/sys/net/ipv4/tcp_{memory}"
        _call("ip", "netns", "exec", name, "sh", "-c", limits)
    bucket = LINKS[link]
    if bucket is None:
        return
    rate, burst = bucket
    for where in (("-n", name), ()):
        device = DEVICE if where else cable
        _call("tc", *where, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", burst, "limit", "32mb")


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _call(*command: str, quietly: bool = False) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and not quietly:
        raise Missing(f"prediction: the machine refused `{' '.join(command)}`: {done.stderr.strip()}")
