"""A cable with a delay, for kernels without tc's netem: passes frames between two TAP devices (network.py starts it).

    python delay_line.py DEVICE DESCRIPTOR SECONDS

What DEVICE, of this network namespace, sends waits so many seconds before the device that is open as DESCRIPTOR gets
it; what comes back does not wait. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

__all__ = ["MTU", "open_tap"]

MTU = 65_000  # large frames, as the program handles each of them
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000


def open_tap(name: str) -> int:
    """A descriptor of the TAP device of that name in this namespace, which is made if there is none."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return descriptor


def main(device: str, outside: int, seconds: float) -> None:
    inside = open_tap(device)
    waiting: deque[tuple[float, bytes]] = deque()
    while True:
        timeout = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        readable, _, _ = select.select([inside, outside, 0], [], [], timeout)
        if 0 in readable and not os.read(0, 1):
            return
        if inside in readable:
            waiting.append((time.monotonic() + seconds, os.read(inside, MTU + 64)))
        if outside in readable:
            pass_on(inside, os.read(outside, MTU + 64))
        while waiting and waiting[0][0] <= time.monotonic():
            pass_on(outside, waiting.popleft()[1])


def pass_on(device: int, frame: bytes) -> None:
    """Drops the frame where the device is not up, or full."""
    with contextlib.suppress(OSError):
        os.write(device, frame)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
