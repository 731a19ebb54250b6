"""Environment variables of a rank: those that the launcher sets and ranks read, besides the plain ones of torchrun.

torchrun's contract, as torchrun sets it: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE,
ROLE_NAME, ROLE_RANK, ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE and
TORCH_NCCL_ASYNC_ERROR_HANDLING. OMP_NUM_THREADS is 1 where a node has several ranks. The node itself sets
GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME, the data device, for gloo and for torch's RPC, and USE_LIBUV: 0 with Debian's
torch, which has no libuv, 1 with PyPI's (node/boot.sh).
"""

RUN_DIR = "GRADWIRE_RUN_DIR"
"""A folder of this run on the node; what a rank leaves in it is fetched to the host."""
SHARED_DIR = "GRADWIRE_SHARED_DIR"
"""A folder that all ranks of the run have in common, on whichever node; it is fetched, too. Set under `--shared`."""
TIMEOUT_S = "GRADWIRE_TIMEOUT_S"
"""How long a collective may take on these links before it counts as hung; node.train adds what its model takes."""
NEIGHBOURS = "GRADWIRE_NEIGHBOURS"
"""The ranks to whose nodes this one has a link of its own, `0,2`, and the others on its own node; empty where nothing
is shaped."""
SLOWEST_MBYTE_S = "GRADWIRE_SLOWEST_MBYTE_S"
"""The rate of the slowest link; not set where nothing is shaped."""
FIT = "GRADWIRE_FIT"
"""The folder of the order under which this rank trains (`protocol/fit_order.py`); set by the rank itself."""
GLOO_LAZY_INIT = "TORCH_GLOO_LAZY_INIT"
"""1 where nodes are isolated: from torch 2.7 on gloo then connects only the ranks that exchange something."""
RUN_ID = "TORCHELASTIC_RUN_ID"
"""The name of the run."""
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""How often this rank was started again; of an essential rank 0."""
MAX_RESTARTS = "TORCHELASTIC_MAX_RESTARTS"
"""How often this rank may be started again; of an essential rank 0."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Where torch's `@record` writes why the rank failed."""
