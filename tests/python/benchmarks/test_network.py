"""Links and what killed programs leave; namespaces where the machine allows them."""

from __future__ import annotations

import doctest
import subprocess
import sys

import click
import network
import pytest
from network import Link, Missing


def test_the_examples_hold():
    assert doctest.testmod(network).failed == 0


@pytest.mark.parametrize("text", ["", "gbit", "1gbit+", "0x1gbit", "1 gbit", "open", "2xopen"])
def test_other_texts_are_no_links(text: str):
    with pytest.raises(ValueError, match="no link"):
        Link.parse(text)


def test_an_unlimited_link_has_no_bucket():
    assert Link.parse("unlimited").shaping(delayed=True) == []


def test_a_bucket_holds_a_fifth_of_a_millisecond_and_64_kib_at_least():
    (bucket,) = Link.parse("1gbit").shaping(delayed=True)
    assert bucket == ["root", "tbf", "rate", "1000000000bit", "burst", "65536b", "limit", "32mb"]
    (bucket,) = Link.parse("10gbit").shaping(delayed=True)
    assert bucket[bucket.index("burst") + 1] == "250000b"


def test_only_the_senders_end_delays():
    link = Link.parse("1gbit+2ms")
    delay, bucket = link.shaping(delayed=True)
    assert delay[:6] == ["root", "handle", "1:", "netem", "delay", "2000us"]
    assert bucket[:2] == ["parent", "1:1"]
    assert link.shaping(delayed=False) == Link.parse("1gbit").shaping(delayed=True)


def test_a_window_holds_what_is_on_a_link_with_a_delay():
    assert Link.parse("1gbit").window == 128 << 10
    assert Link.parse("1gbit+10ms").window >= 2 * 0.02 * 1e9 / 8


def test_a_receive_buffer_holds_what_a_fast_link_brings_while_its_reader_waits():
    assert Link.parse("1gbit").receive_buffer == 128 << 10
    assert Link.parse("10gbit").receive_buffer == 250_000


def test_a_failing_rank_ends_all():
    sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    processes = [subprocess.Popen(command, start_new_session=True) for command in (fails, sleeps)]
    with pytest.raises(click.ClickException, match="rank 0 ended with exit code 3"):
        network.run_all(processes)
    assert all(process.poll() is not None for process in processes)


def test_ranks_of_one_host_share_a_namespace_that_is_removed_again():
    probe = "import os; print(os.environ['RANK'], os.stat('/proc/self/ns/net').st_ino)"
    try:
        with network.network(4, Link.parse("2x1gbit")) as net:
            names = net.namespaces
            inodes = []
            for rank in range(4):
                process = net.start(rank, [sys.executable, "-c", probe], {}, stdout=subprocess.PIPE)
                output, _ = process.communicate(timeout=60)
                inodes.append(output.decode().split()[1])
    except Missing as reason:
        pytest.skip(str(reason))
    assert len(names) == 2
    assert (inodes[0] == inodes[1], inodes[1] == inodes[2], inodes[2] == inodes[3]) == (True, False, True)
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert not any(name in listed for name in names)


ECHO = """
import os, socket, sys, time
here = ("10.213.77.1", 29600)
if os.environ["RANK"] == "0":
    with socket.create_server(here) as server:
        print("ready", flush=True)
        connection, _ = server.accept()
        while data := connection.recv(1 << 16):
            connection.sendall(data)
else:
    with socket.create_connection(here) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        seconds = []
        for _ in range(20):
            start = time.perf_counter()
            connection.sendall(b"x")
            connection.recv(1)
            seconds.append(time.perf_counter() - start)
    print(min(seconds))
"""


def test_a_message_takes_the_delay_of_its_sender():
    try:
        with network.network(2, Link.parse("1gbit+3ms")) as net:
            server = net.start(0, [sys.executable, "-c", ECHO], {}, stdout=subprocess.PIPE)
            assert server.stdout is not None
            assert server.stdout.readline() == b"ready\n"
            client = net.start(1, [sys.executable, "-c", ECHO], {}, stdout=subprocess.PIPE)
            output, _ = client.communicate(timeout=60)
            assert server.wait(timeout=60) == 0
    except Missing as reason:
        pytest.skip(str(reason))
    assert 6e-3 <= float(output) < 12e-3
