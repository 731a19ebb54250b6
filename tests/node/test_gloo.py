"""Tests what docs/links.md says of gloo's sockets, with the torch of this image."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

MESSAGE_BYTES = 1 << 16


def send_buffers(ranks):
    """Return the send buffers of this rank's TCP connections, after it has sent the other only small messages."""
    tensor = torch.ones(MESSAGE_BYTES // 4)
    dist.all_reduce(tensor)
    dist.all_gather([torch.empty_like(tensor) for _ in range(ranks.world_size)], tensor)
    numbers = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [size for size in map(_send_buffer, numbers) if size]


def _send_buffer(number):
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as sock:
        if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getpeername():
            return sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    return 0


def test_gloo_leaves_the_size_of_its_send_buffers_to_the_kernel(pools):
    """Check that torch uses no gloo code that sets them to a message's size.

    Pair::send in pair.cc does that, which ends autotuning: net.core.wmem_max, not tcp_wmem, would then limit the bytes
    that a rank has in flight.
    """
    for buffers in pools(2).run(send_buffers):
        assert len(buffers) >= 2, "no connections were found: to the store, and to the other rank"
        assert min(buffers) > 4 * MESSAGE_BYTES, f"{buffers}: set to the size of a message?"
