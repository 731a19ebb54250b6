"""What a node waits for before it reads its links' counters."""

import socket
import time

from node.accounting.link_counters import undelivered_bytes


def test_what_a_closed_connection_still_has_to_send_counts_until_it_has_arrived():
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        before = undelivered_bytes()
        sender.setblocking(False)
        sent = 0
        while (more := send(sender)) > 0:
            sent += more
        assert undelivered_bytes() <= before  # it is open
        sender.close()
        waiting = undelivered_bytes() - before
        assert 0 < waiting <= sent + 1  # the end of the stream counts as a byte
        with receiver:
            while chunk := receiver.recv(1 << 20):
                sent -= len(chunk)
        assert sent == 0
        deadline = time.monotonic() + 10
        while undelivered_bytes() > before and time.monotonic() < deadline:
            time.sleep(0.01)
        assert undelivered_bytes() <= before


def send(sock):
    try:
        return sock.send(bytes(1 << 16))
    except BlockingIOError:
        return 0
