"""Masks tokens and passwords in command lines before these are written to files; recognises them by name. Pure."""

import re
from collections.abc import Sequence

SECRET = "<secret>"
"""The placeholder for a masked value."""
LAST_PARTS = {"secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials"}
KEYS = {"api", "access", "secret", "private", "auth", "encryption"}  # words before `key`
# Words before `token` that make it a token of a model's input, or a count of tokens.
TOKENS_OF_TEXT = re.compile(
    "audio|bos|by|cls|end|eo[st]|first|image|last|mask|max|min|next|num|pad|per|sep|special|start|stop|text|unk|video"
)
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
IN_URL = re.compile(r"(?<=://)([^\s/:@]*):[^\s/@]+@")


def without_secrets(words: Sequence[str]) -> list[str]:
    """Mask the values of `--token X`, `--api-key=X`, `HF_TOKEN=X`, `https://user:X@host` in a command line."""
    found, is_awaited = [], False
    for word in words:
        name, equals, value = word.partition("=")
        if is_awaited and not word.startswith("-"):
            found.append(SECRET)
        elif value and _is_secret(name):
            found.append(name + equals + SECRET)
        else:
            found.append(IN_URL.sub(rf"\1:{SECRET}@", word))
        is_awaited = word.startswith("-") and not equals and _is_secret(name)
    return found


def _is_secret(name: str) -> bool:
    """Return whether a flag's or variable's value is a secret, judged by its name."""
    parts = [part.lower() for part in PART.findall(name)]
    before, last = ["", "", *parts][-2:]
    if last == "token":
        return TOKENS_OF_TEXT.fullmatch(before) is None
    return last in LAST_PARTS or (last == "key" and before in KEYS)
