"""Measures the duration of an all-reduce on these links. A plain torch.distributed script, independent of gradwire.

python -m cluster.launch --profile wan -- examples/all_reduce.py --mbyte 4
torchrun --nproc-per-node 3 examples/all_reduce.py
"""

import argparse
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--mbyte", type=float, default=4.0, help="size of the tensor, in 10^6 bytes")
parser.add_argument("--repeat", type=int, default=3)
args = parser.parse_args()

dist.init_process_group("gloo")
tensor = torch.ones(int(args.mbyte * 1e6 / 4))
for number in range(args.repeat):
    dist.barrier()
    started = time.perf_counter()
    dist.all_reduce(tensor)
    if dist.get_rank() == 0:
        print(
            f"all-reduce {number}: {args.mbyte} MB in {time.perf_counter() - started:.3f} s",
            flush=True,
        )
dist.destroy_process_group()
