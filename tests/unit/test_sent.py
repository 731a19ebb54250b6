"""What this machine sends to the nodes: a program's folder without keys, and nothing but valid checkpoints."""

import io
import tarfile
from pathlib import Path

import pytest

from cluster.base.errors import UsageError
from cluster.run import checkpoints
from cluster.run import program as program_module
from cluster.run.checkpoints import deal_checkpoints, find_checkpoints
from cluster.run.not_sent import refuse_secret
from cluster.run.program import pack, training, user_program
from cluster.run.rank_placement import place_ranks


def sent(folder):
    with tarfile.open(fileobj=io.BytesIO(pack(folder))) as tar:
        return {member.name for member in tar}


@pytest.fixture
def secrets(tmp_path):
    """A home folder with secrets that must not be sent, and a program's folder beside it."""
    home, program = tmp_path / "home", tmp_path / "program"
    for name in (".ssh/id", ".aws/credentials", ".gnupg/keys/one", "data/word"):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_text("x")
    (home / ".netrc").write_text("x")
    (home / ".env").write_text("x")
    program.mkdir()
    (program / "train.py").write_text("")
    return home, program


def test_keys_and_passwords_of_a_folder_are_not_sent(secrets):
    home, _ = secrets
    (home / "data" / ".env").mkdir()
    (home / "data" / ".env" / "pyvenv.cfg").write_text("x")
    (home / "data" / ".netrc").write_text("x")
    assert sent(home) == {"data/word"}


SECRET_FILES = [
    ".SSH/id",
    ".env.local",
    ".envrc",
    ".git-credentials",
    ".config/git/credentials",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".Netrc",
    "_netrc",
    ".docker/config.json",
    ".kube/config",
    ".config/gcloud/credentials.db",
    ".config/gh/hosts.yml",
    ".azure/profile",
    ".kaggle/kaggle.json",
    "kaggle.json",
    ".cache/huggingface/token",
    ".cache/huggingface/stored_tokens",
    ".huggingface/token",
    "id_rsa",
    "id_ed25519",
    "ID_ECDSA_SK.bak",
    "id_rsa_work",
    ".bash_history",
    ".env~",
    ".env-prod",
    "prod.env",
    "app.ENV",
    ".streamlit/secrets.toml",
    ".vault-token",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".dockercfg",
    ".dockerconfigjson",
    "kubeconfig",
    "kubeconfig.yaml",
    "lab.kubeconfig",
    ".config/rclone/rclone.conf",
    ".oci/config",
    ".netrc.bak",
    ".python_history",
]
ORDINARY_FILES = [
    ".config/app.yml",
    ".docker/Dockerfile",
    ".cache/huggingface/hub/model",
    ".environment",
    "env.py",
    "cart.env.py",
    "secrets.toml",
    "my.cnf",
    "boto.py",
    "kubeconfig.py",
    "account.json",
    "ssh/aws.py",
    "id_map.csv",
    "id_rsa2.csv",
    "ids",
    "my.ssh",
    "docker/config.json",
    "token",
    "src/huggingface/token/model.py",
    "history",
    "ca.pem",
    "talk.key",
    "x.pem/y",
]


@pytest.mark.parametrize("inside", ["", "sub"])
def test_nor_are_files_in_which_programs_keep_tokens_but_all_others_are(tmp_path, inside):
    for name in (*SECRET_FILES, *ORDINARY_FILES):
        path = tmp_path / inside / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("-----BEGIN CERTIFICATE-----")
    assert {Path(name).relative_to(inside).as_posix() for name in sent(tmp_path)} == set(
        ORDINARY_FILES
    )


@pytest.mark.parametrize("name", ["login.pem", "SERVER.KEY", "id_deploy"])
def test_nor_are_private_keys_of_other_names(tmp_path, name):
    (tmp_path / name).write_text("# me\n-----BEGIN RSA PRIVATE KEY-----\nx")
    (tmp_path / "about.md").write_text("It begins with -----BEGIN RSA PRIVATE KEY-----.")
    assert sent(tmp_path) == {"about.md"}


def test_of_json_what_has_a_key_as_a_value_is_one_and_data_that_quotes_one_is_not(tmp_path):
    key = "-----BEGIN PRIVATE KEY-----\\nx"
    (tmp_path / "service-account.json").write_text('{"private_key": "' + key + '"}')
    (tmp_path / "questions.json").write_text('{"text": "What is ' + key + '?"}')
    assert sent(tmp_path) == {"questions.json"}


def test_a_folder_with_the_name_of_such_a_file_is_sent(tmp_path):
    for name in ("levels.env", "kubeconfig"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text("x")
    assert sent(tmp_path) == {"levels.env/a.txt", "kubeconfig/a.txt"}
    refuse_secret(tmp_path / "levels.env")


def test_nor_are_they_by_a_link_to_a_folder_above_them(secrets):
    home, program = secrets
    for name in (".docker/config.json", ".cache/huggingface/token", ".cache/other"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("x")
    (program / "docker").symlink_to(home / ".docker")
    (program / "hub").symlink_to(home / ".cache" / "huggingface")
    (program / "cache").symlink_to(home / ".cache")
    assert sent(program) == {"train.py", "cache/other"}


@pytest.mark.parametrize(
    "place", [".ssh", ".ssh/tools", ".AWS", ".config/gcloud", ".docker/contexts"]
)
def test_a_program_among_secrets_is_refused(tmp_path, monkeypatch, place):
    script = tmp_path / place / "train.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    (tmp_path / "link").symlink_to(script.parent)
    monkeypatch.chdir(script.parent)
    starts = [
        lambda: user_program([str(script)]),
        lambda: user_program(["train.py"], script.parent),
        lambda: user_program([str(tmp_path / "link" / "train.py")]),
        lambda: user_program(["-m", "train"]),
        lambda: pack(script.parent),
    ]
    for start in starts:
        with pytest.raises(UsageError, match=r"keys or passwords.*never sent") as refused:
            start()
        assert "\n" not in refused.value.message


def test_a_program_in_the_home_folder_needs_a_word_of_consent(secrets, monkeypatch):
    home, program = secrets
    (home / "train.py").write_text("")
    (home.parent / "train.py").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    for words in (["train.py"], ["-m", "train"], [str(home.parent / "train.py")]):
        with pytest.raises(UsageError, match="home folder") as refused:
            user_program(words)
        assert "--folder" in refused.value.hint
    assert user_program(["train.py"], home).folder == home
    assert user_program(["-m", "train"], home).folder == home
    assert user_program([str(program / "train.py")]).folder == program


def test_so_does_a_strategy_in_the_home_folder(secrets, monkeypatch):
    home, _ = secrets
    (home / "mine.py").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(program_module, "_resolve", lambda args, ranks: {"task": "mnist"})
    words = ["--strategy", f"{home}/mine.py:Mine"]
    with pytest.raises(UsageError, match="home folder"):
        training(words)
    assert training(words, home).folder == home


def test_nor_are_they_by_a_link(secrets):
    home, program = secrets
    (program / "keys").symlink_to(home / ".ssh")
    (program / "gpg").symlink_to(home / ".gnupg" / "keys")
    (program / "id").symlink_to(home / ".ssh" / "id")
    (program / "settings").symlink_to(home / ".env")
    (program / "data").symlink_to(home / "data")
    assert sent(program) == {"train.py", "data/word"}


@pytest.fixture
def run(tmp_path):
    """A run folder with one valid checkpoint for each of two nodes, and many other files."""
    secret = tmp_path / "secret"
    secret.write_text("HOST SECRET")
    run = tmp_path / "run"
    for node in ("node1", "node2"):
        folder = run / "files" / node
        folder.mkdir(parents=True)
        rank = int(node[-1]) - 1
        (folder / f"checkpoint-rank{rank}-step5.pt").write_text("five")
        (folder / "checkpoint-rank0-step7.pt").symlink_to(secret)
        (folder / "checkpoint-rank0-step8.pt").mkdir()
        (folder / "checkpoint-rank0-step9.pt.part").write_text("half")
        (folder / "checkpoint-rank../x-step1.pt").parent.mkdir()
        (folder / "id_rsa").write_text("x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "checkpoint-rank2-step5.pt").write_text("HOST SECRET")
    (run / "files" / "node3").symlink_to(elsewhere)
    (run / "files" / "other").mkdir()
    return run


def test_only_checkpoints_go_back_to_the_nodes_and_nothing_that_a_link_leads_to(run):
    found = find_checkpoints(run)
    assert {node: [path.name for path in paths] for node, paths in found.items()} == {
        "node1": ["checkpoint-rank0-step5.pt"],
        "node2": ["checkpoint-rank1-step5.pt"],
    }


class Process:
    """A command that accepts its input and succeeds."""

    def __init__(self):
        self.sent, self.node = b"", "node1"

    def write(self, data):
        self.sent += data

    def close_stdin(self):
        pass

    def wait(self):
        return 0, b""

    def close(self):
        pass


def test_they_are_sent_as_an_archive_in_small_pieces(run, monkeypatch):
    monkeypatch.setattr(checkpoints, "PIECE_BYTES", 3)
    process = Process()
    checkpoints._send(process, find_checkpoints(run)["node1"])
    with tarfile.open(fileobj=io.BytesIO(process.sent), mode="r:") as tar:
        (member,) = tar
        assert (member.name, tar.extractfile(member).read()) == (
            "checkpoint-rank0-step5.pt",
            b"five",
        )


def test_links_alone_are_no_checkpoints(run):
    for path in run.glob("files/*/checkpoint-rank?-step5.pt"):
        path.unlink()
    with pytest.raises(UsageError, match="no checkpoints in"):
        training(["--resume", str(run)])


def test_checkpoints_that_are_too_large_are_refused_before_anything_starts(run):
    with (run / "files" / "node2" / "checkpoint-rank1-step6.pt").open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(UsageError, match="checkpoints of node2 .* are 10 GB"):
        find_checkpoints(run)


@pytest.mark.parametrize(
    ("nodes", "ranks_a_node", "essential"),
    [(2, 1, None), (3, 1, {0, 1}), (1, 1, None), (1, 2, None), (3, 1, None)],
)
def test_each_node_gets_its_own_and_all_where_ranks_are_others_or_elsewhere(
    run, nodes, ranks_a_node, essential
):
    """Ranks that are not essential (actors) have written no checkpoints."""
    names = [f"node{n + 1}" for n in range(nodes)]
    dealt = deal_checkpoints(run, place_ranks(names, ranks_a_node, essential))
    assert dealt.keys() == set(names)
    sent = {node: [path.name for path in paths] for node, paths in dealt.items()}
    own = {
        "node1": ["checkpoint-rank0-step5.pt"],
        "node2": ["checkpoint-rank1-step5.pt"],
        "node3": [],
    }
    as_before = nodes == 2 or essential is not None
    everything = own["node1"] + own["node2"]
    assert sent == {node: own[node] if as_before else everything for node in names}


def test_all_together_are_refused_too_if_they_are_too_large(run):
    for path in run.glob("files/node?/checkpoint-rank?-step5.pt"):
        with path.open("wb") as file:
            file.truncate(5 * 10**9)
    assert len(deal_checkpoints(run, place_ranks(["node1", "node2"]))) == 2
    with pytest.raises(UsageError, match="of all nodes in .* are 10 GB, more than 8 GB"):
        deal_checkpoints(run, place_ranks(["node1"]))


def test_a_virtual_environment_stays_here_whatever_its_name(tmp_path):
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "my-python" / "lib").mkdir(parents=True)
    (tmp_path / "my-python" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "my-python" / "lib" / "large.so").write_text("x")
    assert sent(tmp_path) == {"train.py"}
