"""A network of namespaces on one machine: one per host, connected by a bridge, with a limited rate on each link.

Every host has its own network namespace, in which one rank or several run, and one virtual cable (veth) to a bridge. A
token bucket (tc's tbf) at both ends of the cable limits what the host sends and receives to the link's rate, and tc's
netem delays what it sends (where the kernel lacks it, a program does, `delay_line.py`); an unlimited link has neither.
A connection may have 128 KiB in flight, several times what such a link holds, and twice what a link with a delay holds.
With more, acknowledgements wait behind megabytes of data in the bucket, so that both directions together take three
times as long as one; and unlimited links drop packets while the cores are busy, which costs a fifth of a second each
time. So does a receive buffer that is full before its reader has had a turn on a core: it holds what a fast link brings
in 0.2 ms.

It needs root, `ip` and `tc`. Everything is removed when the `with` block ends, also after an error or Ctrl-C; what a
killed program has left is removed when the next one starts.

    sudo .venv/bin/python benchmarks/network.py --ranks 4 1gbit -- python -m pytest ...    # any program, as all ranks
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import click
from delay_line import MTU, open_tap

__all__ = ["DEVICE", "Link", "Missing", "Network", "check", "network", "run_all"]

DEVICE = "joinsum0"
LINE = Path(__file__).resolve().parent / "delay_line.py"
LIMIT = 900.0
_WINDOW = 128 << 10
_LEAST_BURST = 64 << 10
_BURST_SECONDS = 0.2e-3
_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_LINK = re.compile(r"(?:(\d+)x)?(?:(\d+)([kmg]bit)|unlimited)(?:\+([\d.]+)ms)?")
_NAME = re.compile(r"\bjs(\d+)[bcn]\d*\b")


class Missing(Exception):
    """The machine cannot make such namespaces; the text names the remedy."""


@dataclass(frozen=True)
class Link:
    """What connects a host: bits a second (None: unlimited), the delay of what it sends, and the ranks of a host.

    >>> Link.parse("1gbit")
    Link(rate=1000000000.0, delay=0.0, ranks_of_host=1)
    >>> Link.parse("2x100mbit+1.5ms")
    Link(rate=100000000.0, delay=0.0015, ranks_of_host=2)
    """

    rate: float | None
    delay: float = 0.0
    ranks_of_host: int = 1

    @staticmethod
    def parse(text: str) -> Link:
        """Reads `[<ranks of a host>x]<rate>[+<delay>]`. Raises ValueError."""
        match = _LINK.fullmatch(text)
        if match is None or match[1] == "0":
            raise ValueError(f"network: no link: link={text}, examples=1gbit, 2x100mbit, 10gbit+0.5ms, unlimited")
        ranks, rate, unit, delay = match.groups()
        return Link(float(rate) * _UNITS[unit] if rate else None, float(delay or 0) / 1e3, int(ranks or 1))

    @property
    def window(self) -> int:
        """Bytes that a connection may have in flight."""
        return max(_WINDOW, int(2 * 2 * self.delay * (self.rate or 0) / 8))

    @property
    def receive_buffer(self) -> int:
        """Bytes that have arrived on a connection and wait for their reader."""
        return max(self.window, int(_BURST_SECONDS * (self.rate or 0) / 8))

    def shaping(self, delayed: bool) -> list[list[str]]:
        """Arguments of `tc qdisc add dev DEVICE`, one list a call; a delay is left out unless `delayed`."""
        calls = []
        parent = ["root"]
        if delayed and self.delay:
            calls.append(["root", "handle", "1:", "netem", "delay", f"{1e6 * self.delay:.0f}us", "limit", "100000"])
            parent = ["parent", "1:1"]
        if self.rate is not None:
            burst = max(_LEAST_BURST, int(_BURST_SECONDS * self.rate / 8))
            rate = ["rate", f"{self.rate:.0f}bit", "burst", f"{burst}b", "limit", "32mb"]
            calls.append([*parent, "tbf", *rate])
        return calls


@dataclass(frozen=True)
class Network:
    """Namespaces by host; host h has address 10.213.77.(h + 1) on its device `joinsum0`."""

    namespaces: tuple[str, ...]
    ranks: int
    link: Link

    def start(
        self,
        rank: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> subprocess.Popen[bytes]:
        """Starts `command` as that rank, with the environment variables that torch.distributed reads."""
        host, local = divmod(rank, self.link.ranks_of_host)
        own = {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.ranks),
            "MASTER_ADDR": _address(0),
            "MASTER_PORT": "29513",
            "GLOO_SOCKET_IFNAME": DEVICE,
        }
        full = ["ip", "netns", "exec", self.namespaces[host], *command]
        return subprocess.Popen(
            full, env={**os.environ, **environment, **own}, start_new_session=True, stdin=stdin, stdout=stdout
        )


def _address(host: int) -> str:
    return f"10.213.77.{host + 1}"


def check() -> None:
    """Raises Missing unless namespaces can be made here."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise Missing(f"network: `{tool}` is not installed; install iproute2 (apt-get install iproute2)")
    if os.geteuid() != 0:
        raise Missing(f"network: network namespaces need root; run as root (sudo): user id={os.geteuid()}")


@contextmanager
def network(ranks: int, link: Link) -> Iterator[Network]:
    """Sets up hosts for `ranks` ranks and takes them down again.

    Raises Missing with the machine's error where it cannot make them.
    """
    check()
    remove_abandoned()
    tag = f"js{os.getpid()}"
    hosts = -(-ranks // link.ranks_of_host)
    names = tuple(f"{tag}n{host}" for host in range(hosts))
    bridge = f"{tag}b"
    lines: list[subprocess.Popen[bytes]] = []
    with _ending_on_sigterm():
        try:
            _call("ip", "link", "add", bridge, "type", "bridge")
            _call("ip", "link", "set", bridge, "up")
            for host, name in enumerate(names):
                lines += _add_host(name, bridge, f"{tag}c{host}", _address(host), link)
            yield Network(names, ranks, link)
        finally:
            for line in lines:
                line.communicate()
            for host, name in enumerate(names):
                _call("ip", "link", "del", f"{tag}c{host}", quietly=True)
                _call("ip", "netns", "del", name, quietly=True)
            _call("ip", "link", "del", bridge, quietly=True)


def _add_host(name: str, bridge: str, cable: str, address: str, link: Link) -> list[subprocess.Popen[bytes]]:
    """The program that is the host's cable, if it has one."""
    inside = ("ip", "-n", name)
    _call("ip", "netns", "add", name)
    lines = []
    if link.delay and not _knows_netem(name):
        lines.append(_start_line(name, cable, link.delay))
    else:
        _call("ip", "link", "add", cable, "type", "veth", "peer", "name", DEVICE, "netns", name)
    _call("ip", "link", "set", cable, "master", bridge, "up")
    _call(*inside, "addr", "add", f"{address}/24", "dev", DEVICE)
    _call(*inside, "link", "set", DEVICE, "up")
    _call(*inside, "link", "set", "lo", "up")
    # A link's time should not depend on what its sender saw before, as with a congestion control that keeps a model.
    _call("ip", "netns", "exec", name, "sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control")
    for memory, size in (("rmem", link.receive_buffer), ("wmem", link.window)):
        limits = f"echo 4096 {size} {size} > /proc/sys/net/ipv4/tcp_{memory}"
        _call("ip", "netns", "exec", name, "sh", "-c", limits)
    # A message waits once, at its sender's end.
    for shaping in link.shaping(delayed=not lines):
        _call("tc", "-n", name, "qdisc", "add", "dev", DEVICE, *shaping)
    for shaping in link.shaping(delayed=False):
        _call("tc", "qdisc", "add", "dev", cable, *shaping)
    return lines


def _knows_netem(name: str) -> bool:
    """Whether the kernel delays packets; tried in a namespace."""
    tried = subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "lo", "root", "netem"], capture_output=True)
    if tried.returncode == 0:
        _call("tc", "-n", name, "qdisc", "del", "dev", "lo", "root")
    return tried.returncode == 0


def _start_line(name: str, cable: str, delay: float) -> subprocess.Popen[bytes]:
    """A program between the device of a namespace and the cable's end outside."""
    try:
        outside = open_tap(cable)
    except OSError as error:
        raise Missing(f"network: no TAP device for a delay, as the kernel lacks sch_netem: {error}") from None
    _call("ip", "-n", name, "tuntap", "add", DEVICE, "mode", "tap")
    for where, device in ((("ip",), cable), (("ip", "-n", name), DEVICE)):
        _call(*where, "link", "set", device, "mtu", str(MTU))
    command = ["ip", "netns", "exec", name, sys.executable, str(LINE), DEVICE, str(outside), str(delay)]
    line = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[outside])
    os.close(outside)
    return line


def left_by_others(listing: str, alive: set[int]) -> list[str]:
    """Names in a listing of namespaces or devices that belong to programs which no longer run.

    >>> left_by_others("js12n0 (id: 1) js12n1 js7n0 eth0", alive={7})
    ['js12n0', 'js12n1']
    """
    return [match[0] for match in _NAME.finditer(listing) if int(match[1]) not in alive]


def remove_abandoned() -> None:
    """Removes what killed programs have left, and ends the ranks that still run in it."""
    alive = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}
    for name in left_by_others(_call("ip", "netns", "list"), alive):
        for process in _call("ip", "netns", "pids", name, quietly=True).split():
            os.kill(int(process), signal.SIGKILL)
        _call("ip", "netns", "del", name, quietly=True)
    for name in left_by_others(_call("ip", "-o", "link"), alive):
        _call("ip", "link", "del", name, quietly=True)


def run_all(processes: Sequence[subprocess.Popen[bytes]], limit: float = LIMIT) -> None:
    """Waits for the ranks of a program; ends all of them if one fails, after `limit` seconds, and on Ctrl-C."""
    try:
        for rank, process in enumerate(processes):
            if process.wait(timeout=limit) != 0:
                raise click.ClickException(f"rank {rank} ended with exit code {process.returncode}")
    except subprocess.TimeoutExpired:
        raise click.ClickException(f"a rank has not ended within {limit:.0f} s") from None
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


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


def _call(*command: str, quietly: bool = False) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0 and not quietly:
        raise Missing(f"network: the machine refused `{' '.join(command)}`: {done.stderr.strip()}")
    return done.stdout


@click.command()
@click.option("--ranks", default=2, show_default=True)
@click.argument("link")
@click.argument("command", nargs=-1, required=True)
def main(ranks: int, link: str, command: tuple[str, ...]) -> None:
    """Run COMMAND as every rank on hosts connected by LINK."""
    try:
        with network(ranks, Link.parse(link)) as net:
            # torch warns that a namespace's address has no name.
            run_all([net.start(rank, command, {"TORCH_CPP_LOG_LEVEL": "ERROR"}) for rank in range(ranks)])
    except (Missing, ValueError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
