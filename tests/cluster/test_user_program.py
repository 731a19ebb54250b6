"""Any script runs unchanged: its folder reaches the nodes, torchrun's environment is set, its results are fetched."""

import json
from pathlib import Path

import pytest
from containers import TIMEOUT_S, last_run

ALL_REDUCE = """\
import os, sys
import torch
import torch.distributed as dist
from helper import greet

dist.init_process_group("gloo")
value = torch.tensor([float(os.environ["RANK"]) + 1])
dist.all_reduce(value)
print(greet(), "sum", int(value), "arguments", *sys.argv[1:])
open(os.path.join(os.environ["GRADWIRE_RUN_DIR"], "result.txt"), "w").write(str(int(value)))
dist.destroy_process_group()
"""

CONTRACT = {
    "WORLD_SIZE": "3",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0",
    "ROLE_WORLD_SIZE": "3",
    "GLOO_SOCKET_IFNAME": "eth0",
    "TP_SOCKET_IFNAME": "eth0",
}


@pytest.fixture
def folder(tmp_path):
    """A user's program outside the repository: a script, a module beside it, a package, and a data folder."""
    (tmp_path / "train.py").write_text(ALL_REDUCE)
    (tmp_path / "helper.py").write_text(
        "def greet():\n    return open('data/word.txt').read().strip()\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "word.txt").write_text("grüße\n")
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "job.py").write_text(
        "import sys\nprint('job', __package__, *sys.argv[1:])\n"
    )
    return tmp_path


def test_a_script_runs_with_its_folder_and_arguments_and_what_it_leaves_comes_back(
    unshaped, folder
):
    words = ["--lr", "0.1", "--name", "two words; $HOME `id`"]
    done = unshaped.run("launch", "--", folder / "train.py", *words)
    for node in ("node1", "node2", "node3"):
        assert (
            f"{node} | grüße sum 6 arguments --lr 0.1 --name two words; $HOME `id`" in done.stdout
        )
    files = last_run(unshaped, "train") / "files"
    assert [p.read_text() for p in sorted(files.glob("*/result.txt"))] == ["6", "6", "6"]
    assert unshaped.exec("node1", "ls", "/root/work").split() == []  # and nothing is left behind


RPC = """\
import sys
import torch.distributed.rpc as rpc

name, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
options = rpc.TensorPipeRpcBackendOptions(init_method=sys.argv[4])
rpc.init_rpc(name, rank=rank, world_size=size, rpc_backend_options=options)
if rank == 0:
    print("answers", [rpc.rpc_sync(f"node{n}", pow, args=(n, 2)) for n in (2, 3)])
rpc.shutdown()
"""


def test_a_script_that_wants_its_rank_as_an_argument_is_given_it_and_torchs_rpc_finds_its_device(
    unshaped, tmp_path
):
    (tmp_path / "call.py").write_text(RPC)
    words = ["{node}", "{rank}", "{world_size}", "tcp://{master_addr}:{master_port}"]
    done = unshaped.run("launch", "--", tmp_path / "call.py", *words)
    assert "node1 | answers [4, 9]" in done.stdout


def test_what_links_lead_to_reaches_the_nodes(unshaped, folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "word.txt").write_text("hello\n")
    (folder / "data" / "word.txt").unlink()
    (folder / "data").rmdir()
    (folder / "data").symlink_to(elsewhere)
    (folder / "pack" / "back").symlink_to(folder)  # a symbolic link that makes a cycle
    (folder / "say.py").write_text("from helper import greet\nprint(greet())\n")
    done = unshaped.run("launch", "--", folder / "say.py")
    assert done.stdout.count(" | hello\n") == 3


def test_a_link_that_leads_nowhere_at_home_loses_nothing_else(unshaped, tmp_path):
    script = tmp_path / "leave.py"
    script.write_text(
        "import os\nplace = os.environ['GRADWIRE_RUN_DIR']\n"
        "open(f'{place}/metrics.jsonl', 'w').write('loss 0.5\\n{\"loss\": 0.4}\\n')\n"
        "open(f'{place}/model.pt', 'w').write(os.environ['RANK'])\n"
        "os.symlink(f'{place}/model.pt', f'{place}/latest.pt')\nos.mkfifo(f'{place}/pipe')\n"
        "os.symlink('/etc/hostname', f'{place}/out.pt')\n"
    )
    done = unshaped.run("launch", "--json", "--", script)
    folder = Path(json.loads(done.stdout)["folder"])
    assert "latest.pt is left out" not in done.stderr
    assert "node2: out.pt is left out" in done.stderr
    assert "node2: pipe is left out" in done.stderr
    assert (folder / "model.pt").read_text() == "0"
    assert (folder / "files" / "node2" / "model.pt").read_text() == "1"
    assert (folder / "files" / "node2" / "latest.pt").read_text() == "1"  # a whole regular file
    assert "loss 0.5" in (folder / "files" / "node3" / "metrics.jsonl").read_text()
    assert unshaped.exec("node2", "ls", "/run/gradwire/runs").split() == []


def test_a_module_runs_from_the_current_folder(unshaped, folder):
    import os

    environ = os.environ | {"PYTHONPATH": str(unshaped.state_dir.parents[1])}
    done = unshaped.run("launch", "--", "-m", "pack.job", "--x", "1", cwd=folder, env=environ)
    assert "node3 | job pack --x 1" in done.stdout


def test_the_environment_is_torchruns(unshaped, tmp_path):
    script = tmp_path / "environ.py"
    script.write_text("import json, os\nprint(json.dumps(dict(os.environ)))\n")
    done = unshaped.run("launch", "--", script)
    environs = {}
    for line in done.stdout.splitlines():
        node, bar, text = line.partition(" | ")
        if bar and text.startswith("{"):
            environs[node] = json.loads(text)
    assert [environs[f"node{r + 1}"]["RANK"] for r in range(3)] == ["0", "1", "2"]
    for environ in environs.values():
        assert {key: environ.get(key) for key in CONTRACT} == CONTRACT
        assert environ["GROUP_RANK"] == environ["ROLE_RANK"] == environ["RANK"]
        assert environ["TORCHELASTIC_ERROR_FILE"].startswith(environ["GRADWIRE_RUN_DIR"])
        assert float(environ["GRADWIRE_TIMEOUT_S"]) >= 60


def test_ranks_run_at_nice_19(unshaped, tmp_path):
    script = tmp_path / "nice.py"
    script.write_text("import os\nprint('nice', os.nice(0))\n")
    assert unshaped.run("launch", "--", script).stdout.count("nice 19") == 3


def test_with_json_the_programs_words_go_to_standard_error(unshaped, tmp_path):
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    done = unshaped.run("launch", "--json", "--", script)
    assert json.loads(done.stdout)["status"] == "done"
    assert done.stderr.count("| hello") == 3


def test_a_reader_that_goes_away_does_not_stop_the_run(unshaped, tmp_path):
    """As in `launch -- talk.py | head -1`."""
    script = tmp_path / "talk.py"
    script.write_text(
        "import os, time\nfor n in range(20):\n    print(n, flush=True)\n    time.sleep(0.1)\n"
        "open(os.environ['GRADWIRE_RUN_DIR'] + '/done', 'w').close()\n"
    )
    launched = unshaped.start("launch", "--", script)
    while " | 0" not in launched.stdout.readline():
        pass
    launched.stdout.close()
    with launched.stderr:
        stderr = launched.stderr.read()
    assert launched.wait(timeout=TIMEOUT_S) == 0, stderr
    assert "BrokenPipe" not in stderr
    assert len(list(last_run(unshaped, "talk").glob("files/*/done"))) == 3


# A hundred datagrams of 1,000 bytes from node1 to node2; each takes 1,042 bytes on the link.
SEND = """\
import os, socket, time
if os.environ["RANK"] == "0":
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(100):
        here.sendto(bytes(1000), ("node2", 9999))
        time.sleep(0.01)
"""


def test_each_run_counts_its_own_bytes(mobile, tmp_path):
    """The kernel's counters continue across runs; each run counts what it sent, and a little ARP and ICMP."""
    script = tmp_path / "send.py"
    script.write_text(SEND)
    for _ in range(2):
        links = mobile.json("launch", "--no-verify", "--", script)["bytes"]["links"]
        assert links["node1->node2"] == pytest.approx(104_200, rel=0.02)
        assert max(count for link, count in links.items() if link != "node1->node2") < 20_000


OWN_STRATEGY = """\
from dataclasses import dataclass

import torch  # which the host does not have

from beside import factor
from node.base.options import option
from node.strategies.base import Strategy


@dataclass
class Mine(Strategy):
    every: int = option(50, "steps between two averages", at_least=1)

    def step(self, step):
        self.optimizer.step()
        if step % (factor * self.every) == 0:
            self.comm.average(self.parameters)
"""


SMALL_TASK = """\
import torch
from torch.utils.data import TensorDataset


class Line(torch.nn.Linear):
    def forward(self, batch):
        return ((super().forward(batch[0]) - batch[1]) ** 2).mean()


def make_task():
    data = TensorDataset(torch.randn(96, 60_000), torch.randn(96, 1))
    return Line(60_000, 1), data, data
"""


def test_a_strategy_of_ones_own_trains(unshaped, tmp_path):
    (tmp_path / "mine.py").write_text(OWN_STRATEGY)
    (tmp_path / "beside.py").write_text("factor = 2\n")
    (tmp_path / "task.py").write_text(SMALL_TASK)
    words = ["--strategy", f"{tmp_path}/mine.py:Mine", "--set", "every=2", "--steps", "4"]
    words += ["--task", f"{tmp_path}/task.py:make_task"]
    summary = unshaped.json("launch", *words, "--batch-size", "8")
    assert summary["run"].endswith("-Mine")
    # One average of 60,001 parameters in four steps, by a ring of three.
    assert summary["bytes"]["payload"] == pytest.approx(3 * 4 / 3 * 4 * 60_001, rel=0.01)


def test_a_mistake_in_ones_own_strategy_is_named_before_anything_starts(unshaped, tmp_path):
    (tmp_path / "mine.py").write_text(
        OWN_STRATEGY.replace("import torch", "").replace("from b", "#")
    )
    words = ["--strategy", f"{tmp_path}/mine.py:Mine", "--set", "evry=2"]
    done = unshaped.run("launch", *words, check=2)
    assert "unknown option of strategy" in done.stderr and "did you mean 'every'" in done.stderr
