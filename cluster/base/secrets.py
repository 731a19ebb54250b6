"""Masks tokens and passwords in command lines and options before these are written to files. Pure.

A secret is recognised by its name (`--hf-token`, `API_KEY=`, `"password":`), by its place in a URL, or by its shape
(`hf_…`, `ghp_…`). If in doubt it is masked: then a run cannot be repeated from its files, which is the lesser harm.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

SECRET = "<secret>"
"""The placeholder for a masked value."""
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SECRET_WORDS = re.compile(
    "authorization|bearer|credentials?|passcode|[a-z]*(jwt|passphrase|passwd|passwords?|pwd|secrets?)"
)
# Words before `token` that make it a token of a model's input, or a count of tokens.
OF_TEXT = re.compile(
    "add|audio|bos|by|cls|end|eo[st]|extra|first|image|last|mask|max|min|new|next|num|of|pad|per|sep|special|start|stop"
    "|text|unk|video"
)
# Words that are secret, unless one of these is before them or, if it may be empty, nothing is.
UNLESS_AFTER = {
    "token": OF_TEXT,
    "tokens": OF_TEXT,
    "pass": re.compile(
        "all|backward|band|first|forward|high|last|low|max|min|multi|num|one|per|single|two"
    ),
}
# Words before `key` that make it a secret; most keys are names of columns, dictionaries or random numbers.
BEFORE_KEYS = {
    *(
        "access",
        "account",
        "api",
        "auth",
        "client",
        "encryption",
        "license",
        "master",
        "private",
        "secret",
        "service",
    ),
    *("session", "shared", "signing", "ssh", "storage"),
    *(
        "anthropic",
        "aws",
        "azure",
        "cohere",
        "comet",
        "gcp",
        "github",
        "gitlab",
        "google",
        "groq",
        "hf",
        "huggingface",
        "jwt",
    ),
    *("mistral", "mlflow", "neptune", "openai", "openrouter", "replicate", "together", "wandb"),
}
# The same without a division (`--secretkey`), and names of tokens without one (`--hftoken`, but not `--maxtokens`).
JOINED = re.compile(rf"[a-z]*({'|'.join(sorted(BEFORE_KEYS))})(keys?|token)|(bearer|git|hub)token")
# `?sig=` and `&X-Amz-Signature=`: whoever has such a URL needs no password. Elsewhere, `sig` may be a number.
SIGNATURE = re.compile(r"[?&](?:sig|(?:[\w-]*-)?signature)$", re.IGNORECASE)
FILE = re.compile(r"[\w./-]*\.(bin|idx|json|jsonl|model|np[yz]|parquet|pt|txt)", re.IGNORECASE)
COUNT = re.compile(r"\d[\d_.,]*(e\d+)?[kmbgt]?", re.IGNORECASE)
SWITCH = re.compile(
    "--?(allow|ask|disable|enable|has|log|no|print|require|return|save|show|skip|use|with|without)[-_]"
)
IN_URL = re.compile(r"(?<=://)([^\s/:@?#]*):[^\s/?#]+@")
# A user without a password, which may be a token; with ssh it is only a name.
USER_IN_URL = re.compile(r"(?<!ssh://)(?<!sftp://)(?<=://)[^\s/:@?#<]+(?=:?@)")
# `"name": value` and `name: value`, as in JSON, YAML and headers; not `image:tag`.
NAME = re.compile(r"""(?<![\w.-])([\w.-]+)(?:\\*["']\s*:\s*|:\s+)""")
VALUE = re.compile(
    r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[\[{][^\]}]*[\]}]|[^\n,;}\]]+""", re.DOTALL
)
SHAPES = re.compile(
    r"(?<![A-Za-z0-9])"
    r"(?:hf_[A-Za-z0-9]{16,}|gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|sk-[\w-]{0,99}?[A-Za-z0-9]{16,}[\w-]*|A[KS]IA[A-Z0-9]{16}|xox[a-z]-[\w-]{10,}"
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|AIza[\w-]{30,}|npm_[A-Za-z0-9]{30,}|pypi-AgEI[\w-]{30,}"
    r"|(?<![\w-])eyJ[\w-]+\.eyJ[\w-]+\.[\w-]+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*|(?<=Bearer )[\w.~+/=-]{16,})"
)


def without_secrets(words: Sequence[str]) -> list[str]:
    """Mask the values of `--token X`, `--set=api_key=X`, `{"token": "X"}`, `https://user:X@host` in a command line."""
    return [
        SECRET if _asks_for_secret(before, word) else _without_secrets_in(word)
        for before, word in pairwise(["", *words])
    ]


def without_secret_options(config: Mapping[str, object]) -> dict[str, object]:
    """Mask the secrets among the options in a configuration: in its values that are mappings themselves."""
    return {
        name: {option: _option(str(option), word) for option, word in value.items()}
        if isinstance(value, Mapping)
        else value
        for name, value in config.items()
    }


def _option(name: str, value: object) -> object:
    return (
        _without_secrets_in(f"{name}={value}")[len(name) + 1 :] if isinstance(value, str) else value
    )


def _asks_for_secret(before: str, word: str) -> bool:
    """Return whether a word is the value of the flag, or of the `name:`, that is the word before it."""
    if word == "--":
        return False
    if SWITCH.match(before) and word.startswith("-"):  # `--use-auth-token --epochs 2`
        return False
    names_next = before.endswith(":") or (before.startswith("-") and "=" not in before)
    return before == "Bearer" or (names_next and _is_secret(before, word))


def _without_secrets_in(word: str) -> str:
    """Return a word with the secrets in it masked; all that follows a secret's `name=` is taken for its value."""
    parts = word.split("=")
    for n, name in enumerate(parts[:-1], 1):
        if not _is_secret(name):
            continue
        value = "=".join(parts[n:])
        if value and _is_secret(name, value):
            return f"{_masked('='.join(parts[:n]))}={SECRET}"
    return _masked(word)


def _masked(text: str) -> str:
    text = USER_IN_URL.sub(SECRET, IN_URL.sub(rf"\1:{SECRET}@", text))
    return SHAPES.sub(SECRET, _with_masked_pairs(text))


def _with_masked_pairs(text: str) -> str:
    """Return a text in which the values of `"password": value` are masked; a value may hold further pairs."""
    parts, end = [], 0
    for name in NAME.finditer(text):
        if name.start() < end or not _is_secret(name[1]):
            continue
        value = VALUE.match(text, name.end())
        if value and _is_secret(name[1], value[0]):
            quote = value[0][0] if value[0][0] in "\"'" else ""
            parts += [text[end : name.end()], quote, SECRET, quote]
            end = value.end()
    return "".join([*parts, text[end:]])


def _is_secret(name: str, value: str = "") -> bool:
    """Return whether the value of a flag, variable or key is a secret, judged by its name."""
    if SIGNATURE.search(name):
        return True
    parts = [part.lower() for part in PART.findall(name)]
    is_plain = COUNT.fullmatch(value.strip()) or FILE.fullmatch(value.strip())
    if parts == ["pat"]:  # a personal access token; `--feature-pat` may be anything
        return not is_plain
    before, last = ["", "", *parts][-2:]
    if last in ("key", "keys"):
        return before in BEFORE_KEYS
    if last in ("tokens", "pass") and is_plain:
        return False
    if last in UNLESS_AFTER:
        return UNLESS_AFTER[last].fullmatch(before) is None
    return bool(SECRET_WORDS.fullmatch(last) or (JOINED.fullmatch(last) and not is_plain))
