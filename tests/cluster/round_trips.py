"""Prints the shortest round trip of one byte from each rank to rank 0, and a sum over all ranks."""

import os
import socket
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]) + 7
if rank == 0:
    with socket.create_server(address) as server:
        dist.barrier()
        for _ in range(1, size):
            connection, _ = server.accept()
            while byte := connection.recv(1):
                connection.sendall(byte)
            connection.close()
else:
    dist.barrier()
    with socket.create_connection(address) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shortest_s = float("inf")
        for _ in range(20):
            began = time.monotonic()
            connection.sendall(b"x")
            connection.recv(1)
            shortest_s = min(shortest_s, time.monotonic() - began)
    print(f"rank {rank}: round trip {1000 * shortest_s:.2f} ms", flush=True)
total = torch.tensor([float(rank + 1)])
dist.all_reduce(total)
print(f"rank {rank}: sum {total.item():g}", flush=True)
dist.destroy_process_group()
