"""Joining the process group."""

import multiprocessing
import multiprocessing.connection

import torch
from conftest import HANGS_S, free_port, torchrun_environ

from node.dist.process_group import process_group
from node.dist.rank_env import read_rank_env


def join(pipe, rank, kind, port):
    try:
        with process_group(read_rank_env(torchrun_environ(rank, 2, port)), torch.device(kind), 30):
            pipe.send("joined")
    except RuntimeError as error:
        pipe.send(str(error))


def test_ranks_with_and_without_a_gpu_are_refused_at_once():
    """Otherwise nccl and gloo wait for each other until the timeout. No rank touches its device before that."""
    fork, port = multiprocessing.get_context("fork"), free_port()
    pipes, ranks = [], []
    for rank, kind in enumerate(("cpu", "cuda")):
        mine, theirs = fork.Pipe()
        pipes.append(mine)
        ranks.append(fork.Process(target=join, args=(theirs, rank, kind, port), daemon=True))
        ranks[-1].start()
    said = refusal(pipes)
    for one in ranks:
        one.kill()
        one.join()
    assert "cpu of rank 0" in said or "cuda of rank 1" in said


def refusal(pipes):
    """What the second rank says. The first goes on: it waits, or (if it is the GPU's) this torch has no nccl for it."""
    waiting, said = list(pipes), []
    while waiting:
        ready = multiprocessing.connection.wait(waiting, timeout=HANGS_S)
        assert ready, f"no refusal: {said}"
        said += [pipe.recv() for pipe in ready]
        for words in said:
            if "give every node a GPU (--gpus all), or none" in words:
                return words
        waiting = [pipe for pipe in waiting if pipe not in ready]
    raise AssertionError(f"no refusal: {said}")
