"""Tokens and passwords in arguments: a run's files do not contain them, and it is not launched again without them."""

import dataclasses
import re
import time
from pathlib import Path

import pytest
from test_past_run import PROGRAM, write_run

from cluster.base.console import command_line
from cluster.base.errors import UsageError
from cluster.base.secrets import SECRET, without_secrets
from cluster.run.launch_again import experiment_again
from cluster.run.past_run import read_past_launch
from cluster.run.program import training

DOCS = Path(__file__).parents[2] / "docs"
SECRET_BY_NAME = [
    "--token X",
    "--token=X",
    "--hf-token X --epochs 2",
    "--hub_token X",
    "--authtoken X",
    "--tokens X",
    "--wandb-api-key=X",
    "--wandb-key X",
    "--openai-key X",
    "--api-keys X",
    "--apiKey X",
    "--db.password X",
    "--pwd X",
    "--pass X",
    "--db-pass=X",
    "PGPASSWORD=X",
    "--dbpassword X",
    "--clientsecret X",
    "--secretkey X",
    "--accesskey=X",
    "AWSSECRETACCESSKEY=X",
    "--authkey X",
    "--hftoken X",
    "GITHUBTOKEN=X",
    "--jwt X",
    "--auth-jwt=X",
    "--pat X",
    "PAT=X",
    "--url https://host/path?sv=2022&sig=X",
    "--url=https://host/path?sig=X",
    "https://host/path?Signature=X",
    "HF_TOKEN=X",
    "AWS_SECRET_ACCESS_KEY=X",
    "model.api_key=X",
    "--set=hf_token=X",
    "--env=API_KEY=X",
    "--env A=1,API_KEY=X",
    "--url https://me:X@host/path?a=b",
    "--url=https://host/path?a=b&token=X",
    "--url https://X@github.com/x",
    "--url https://X:@host/x",
    "redis://:X@host:6379/0",
    "-token X",
    "--header Authorization:|X",
    "--header Api-Key:|X",
    "Authorization: X",
    """{"token":|"X"}""",
    """--config={"lr":|1,|"token":|"X",|"size":|2}""",
    """{'api_key':'X'}""",
    """{"password":"X"}""",
    """{"max_token":|{"hub":|{"a":|1,|"token":|"X"}}}""",
    """{"a":|{"secrets":|X}}""",
    """{\\"token\\":|X}""",
    "{password:|X,|lr:|0.1}",
    "password:|X",
]
"""Words with a secret X; words are divided by blanks, and | is a blank within a word."""
SECRET_BY_SHAPE = [
    "hf_" + "aB3" * 11,
    "ghp_" + "aB3" * 12,
    "github_pat_" + "aB3_" * 10,
    "sk-" + "aB3" * 16,
    "sk-proj-" + "aB3" * 16,
    "AKIA" + "ABCD" * 4,
    "xoxb-123456789012-abcdefABCDEF",
    "glpat-" + "aB3-" * 5,
    "sk_live_" + "aB3" * 8,
    "rk_test_" + "aB3" * 8,
    "AIza" + "aB3-_" * 7,
    "npm_" + "aB3" * 12,
    "pypi-AgEIcHlwaS5vcmc" + "aB3-_" * 20,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.aB3-_" + "aB3" * 13,
]
ORDINARY = [
    "--tokenizer gpt2",
    "--max-tokens 512",
    "--tokens 512 --train-tokens 1.5e9 --context-tokens=10B",
    "--pad-token <pad>",
    "--eos_token=</s>",
    "--cost-per-token 2",
    "--key first",
    "--keys 4",
    "--monkey 3",
    "num_key_value_heads=8",
    "--set=num_key_value_heads=8",
    "--sort-key=loss",
    "--foreign-key id --primary_key id --partition-key day --public-key a",
    "--key-file /run/key --token-file=/run/token --password-file p",
    "--maxtokens 512 --numtokens=512 --padtoken <pad> --sharedtokens 8 --subtoken a --hotkey k --turkey 1",
    "--key-dim 64 --pass-through --passthrough 1 --path a --pattern b --patience 3 --spat 1 --feature-pat a",
    "--pat 10 --numapikeys 3 --sharedkey 3",
    "--sig 0.1 sig=0.1 --signature f(x) --signal=3 http://host/sig?signal=3&design=4&x=sig --jwt-algorithm RS256",
    "npm_config_cache pypi-mirror-of-training-data-for-all-nodes sk_live_demo AIzawa eyJ.py eyJ.eyJ.x",
    "--low-pass 30 --one-pass --passes 2 --bypass",
    "--use-auth-token --epochs 2",
    "--prompt-key q --reward-fn-key r data.prompt_key=p --loss-key=l --rng-key 42 --observation-key o",
    "--tokens data.bin --train-pass 3 --show-password --epochs 2",
    "--no-password -v",
    "--token -- train.py",
    "--address tcp://{master_addr}:{master_port}",
    "train.py key=value a=b=c = --",
    "git@host:path http://host:80/a@b http://host?mail=a@b",
    "--host ssh://me@box.example --url git+ssh://git@github.com/x",
    "--image registry/my-token:latest",
    "--strategy ./token.py:Mine --folder ../secret/keys",
    "{'lr':|0.1,|'max_tokens':|5,|'tokens':|512}",
    "step:|4 --text the|bearer|of|good|news",
    "hf_model hf_my_transformer_baseline sk-learn_baseline-experiment-2 runs/ghp_test AKIA xoxo-1",
]


def words_of(text):
    return [word.replace("|", " ") for word in text.split()]


@pytest.mark.parametrize("text", SECRET_BY_NAME)
def test_what_is_secret_by_its_name_is_not_written_down(text):
    masked = words_of(text.replace("X", SECRET))
    for value in ("t0k=n", "-s3cret", "--S3cret"):
        assert without_secrets([word.replace("X", value) for word in words_of(text)]) == masked


@pytest.mark.parametrize("value", SECRET_BY_SHAPE)
def test_what_looks_like_a_token_is_not_written_down_whatever_its_name(value):
    for text in ("{}", "--model {}", "--set=a={}", "login|with|{},|please"):
        said = words_of(text.format(value))
        assert without_secrets(said) == words_of(text.format(SECRET))


@pytest.mark.parametrize(
    "text",
    [
        "Bearer X",
        "Authorization: Bearer X",
        "Authorization:|Bearer|X",
        "--header Bearer|X",
        '{"authorization":|"Bearer|X"}',
    ],
)
def test_nor_is_what_follows_bearer(text):
    words = words_of(text.replace("X", "aB3" * 8))
    assert "aB3" not in " ".join(without_secrets(words))


@pytest.mark.parametrize("text", ORDINARY)
def test_what_is_not_stays(text):
    assert without_secrets(words_of(text)) == words_of(text)


def test_nor_is_the_signature_of_a_url():
    url = "https://host/path?X-Amz-Date=1&X-Amz-Signature="
    assert without_secrets(["--url", f"{url}0a1b"]) == ["--url", url + SECRET]


def test_the_other_parts_of_a_word_with_a_secret_are_kept_and_masked_too():
    said = ["--url=https://me:one@host/?token=two", "--token", "--password", "three"]
    masked = [f"--url=https://me:{SECRET}@host/?token={SECRET}", "--token", SECRET, SECRET]
    assert without_secrets(said) == masked


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "=",
            "a=",
            "sk-",
            "a-",
            "://",
            '"a":',
            "x: {",
            "token: ",
            '"',
            "?sig",
            "&signature-",
            "hfhf",
        ),
        *("-eyJ", ".eyJ", ".eyJa.eyJ", "pypi-", "AIza-", "npm_", "sk_live_"),
    ],
)
def test_a_long_argument_takes_no_time(piece):
    """It takes less than 1 s; if the rest of the word were read at every place, it would take 20 s or more."""
    started = time.process_time()
    without_secrets([piece * 100_000])
    assert time.process_time() - started < 10


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.stem)
def test_no_flag_or_option_of_ours_is_secret(page):
    if page.name in {"LOG.md", "decisions.md", "running.md"}:
        return  # these name a program's secrets
    text = page.read_text()
    for flag in re.findall(r"--[a-z][\w-]*", text):
        assert without_secrets([flag, "value"]) == [flag, "value"]
    settings = re.findall(r"\b[a-z]\w*=[\w.]+", text)
    assert without_secrets(settings) == settings


OWN = """
from dataclasses import dataclass
from node.strategies.base import Strategy

@dataclass
class Mine(Strategy):
    "One with a secret."
    hf_token: str = ""
    max_tokens: int = 5
    source: str = ""
"""


def test_nor_is_an_option_of_ones_own_strategy_in_the_configuration(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    words = ["--set=hf_token=one", "--set", "source=https://me:two@host"]
    program = training(["--strategy", f"{tmp_path}/mine.py:Mine", *words])
    options = {"hf_token": SECRET, "max_tokens": 5, "source": f"https://me:{SECRET}@host"}
    assert program.config["strategy_options"] == options
    assert words == list(program.argv[3:6])  # as the ranks get them


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
