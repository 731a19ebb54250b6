"""Tokens and passwords in arguments: a run's files do not contain them, and it is not launched again without them."""

import dataclasses

import pytest
from test_past_run import PROGRAM, write_run

from cluster.base.console import command_line
from cluster.base.errors import UsageError
from cluster.base.secrets import SECRET, without_secrets
from cluster.run.launch_again import experiment_again
from cluster.run.past_run import read_past_launch

SHOWN = [
    "--token X",
    "--token=X",
    "--hf-token X --epochs 2",
    "--hub_token X",
    "--wandb-api-key=X",
    "--apiKey X",
    "--db.password X",
    "HF_TOKEN=X",
    "AWS_SECRET_ACCESS_KEY=X",
    "model.api_key=X",
    "--url https://me:X@host/path?a=b",
    "-token X",
]
KEPT = [
    "--tokenizer gpt2",
    "--max-tokens 512",
    "--pad-token <pad>",
    "--eos_token=</s>",
    "--cost-per-token 2",
    "--key first",
    "--sort-key=loss",
    "--use-auth-token --epochs 2",
    "--address tcp://{master_addr}:{master_port}",
    "train.py key=value a=b=c = --",
    "git@host:path http://host:80/a@b",
]


@pytest.mark.parametrize("text", SHOWN)
def test_what_is_secret_by_its_name_is_not_written_down(text):
    assert without_secrets(text.replace("X", "t0k=n").split()) == text.replace("X", SECRET).split()


@pytest.mark.parametrize("text", KEPT)
def test_what_is_not_stays(text):
    assert without_secrets(text.split()) == text.split()


def test_the_files_of_a_run_have_no_secret_and_launch_says_what_is_missing(tmp_path, monkeypatch):
    words = ["train.py", "--hf-token", "hf_geheim", "--epochs", "2"]
    monkeypatch.setattr("sys.argv", ["/x/cluster/launch.py", "--no-verify", "--", *words])
    assert "hf_geheim" not in command_line()
    program = dataclasses.replace(PROGRAM, argv=("python3", *words), config={})
    folder = write_run(tmp_path / "run", program=program)
    for path in filter(lambda path: path.is_file(), folder.rglob("*")):
        assert b"hf_geheim" not in path.read_bytes(), path
    with pytest.raises(UsageError, match="does not keep the value of --hf-token"):
        experiment_again(read_past_launch(folder))
