"""Environment variables of a rank: those that the launcher sets and ranks read, besides the plain ones of torchrun.

Set as torchrun sets them: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE, ROLE_NAME,
ROLE_RANK, ROLE_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE and TORCH_NCCL_ASYNC_ERROR_HANDLING.
OMP_NUM_THREADS is 1 if a node has several ranks. The node itself sets GLOO_SOCKET_IFNAME and TP_SOCKET_IFNAME (the data
device, for gloo and for torch's RPC) and USE_LIBUV: 0 with Debian's torch, which has no libuv, 1 with PyPI's
(node/boot.sh).
"""

RUN_DIR = "GRADWIRE_RUN_DIR"
"""A folder of this run on the node; its contents are fetched to the host."""
SHARED_DIR = "GRADWIRE_SHARED_DIR"
"""A folder that all ranks of the run share, on all nodes; it is fetched, too. Set under `--shared`."""
TIMEOUT_S = "GRADWIRE_TIMEOUT_S"
"""How long a rank waits for others in a collective, or to join them, before it fails; node.train adds the time for its
model. It is long, because the others may be computing or testing meanwhile: a launcher ends runs in which nothing moves
(`--stall-timeout`)."""
SILENCE_S = "GRADWIRE_SILENCE_S"
"""How long nothing may arrive over these links before their other end counts as lost: learner and actors then end."""
NEIGHBOURS = "GRADWIRE_NEIGHBOURS"
"""The ranks on nodes to which this rank's node has a link, and the other ranks on its own node: `0,2`; empty if nothing
is shaped."""
SLOWEST_MBYTE_S = "GRADWIRE_SLOWEST_MBYTE_S"
"""The rate of the slowest link; not set if nothing is shaped."""
FIT = "GRADWIRE_FIT"
"""The folder of the order under which this rank trains (`protocol/fit_order.py`); set by the rank itself."""
GLOO_LAZY_INIT = "TORCH_GLOO_LAZY_INIT"
"""1 if nodes are isolated: from torch 2.7 on, gloo then connects only ranks that exchange something."""
RUN_ID = "TORCHELASTIC_RUN_ID"
"""The name of the run."""
RESTART_COUNT = "TORCHELASTIC_RESTART_COUNT"
"""How often this rank was restarted; 0 for an essential rank."""
MAX_RESTARTS = "TORCHELASTIC_MAX_RESTARTS"
"""How often this rank may be restarted; 0 for an essential rank."""
ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""The file to which torch's `@record` writes why the rank failed."""
