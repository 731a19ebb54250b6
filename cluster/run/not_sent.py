"""Says what of a program's folder stays on this machine: keys and passwords, and what no node needs.

Whoever needs such a file on the nodes copies it to another name, or passes its content as an argument.
"""

import os
import re
from pathlib import Path

from cluster.base.errors import UsageError
from cluster.base.yaml_file import is_file

NOT_NEEDED = {
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".gradwire",
    "runs",
}
# Files, and folders with all that is in them; capitals count as small letters, as file systems may.
SECRETS = (
    r"\.ssh|\.gnupg|\.password-store|id_(?:rsa|dsa|ecdsa|ed25519)(?:[-_.].*)?|.*\.(?:ppk|p12|pfx)",
    r"\.aws|\.azure|\.config/gcloud|application_default_credentials\.json|\.kube|\.docker/(?:config\.json|contexts)",
    r"\.env(?:[-_.~].*)?|\.envrc|[._]netrc.*|\.pgpass|\.git-credentials|\.config/(?:git/credentials|gh)",
    r"\.npmrc|\.pypirc|(?:\.cache/|\.)huggingface/(?:token|stored_tokens)|\.kaggle|kaggle\.json",
    r"\.my\.cnf|\.s3cfg|\.boto|\.oci|\.?rclone\.conf|\.dockercfg|\.dockerconfigjson",
    r"\.vault-token|\.streamlit/secrets\.toml|\.\w+_history",
)
SECRET = re.compile(f"(?:^|/)({'|'.join(SECRETS)})(?:/|$)".replace(".*", "[^/]*"), re.IGNORECASE)
# Files alone: a folder of such a name may be anything.
SECRET_FILE = re.compile(r".+\.env|(?:.*\.)?kubeconfig(?:\.ya?ml)?", re.IGNORECASE | re.DOTALL)
MAY_BE_KEY = re.compile(r"id_.*|.*\.(pem|key|json)", re.IGNORECASE | re.DOTALL)
KEY_WITHIN_BYTES = 2**16
# Of JSON only a value that begins so, as in a service account's key: data may quote one.
KEY = re.compile(rb"PRIVATE KEY-----")
KEY_IN_JSON = re.compile(rb'"\s*-----BEGIN [A-Z ]*PRIVATE KEY-----')


def is_left_out(folder: Path, parent: Path) -> bool:
    """Return whether a folder is not sent: a secret, a loop, a virtual environment of any name, or not needed.

    Args:
        folder: where it was found.
        parent: the folder that it is in, without links.
    """
    if folder.name in NOT_NEEDED or is_file(folder / "pyvenv.cfg"):
        return True
    return _is_loop(folder) or is_secret(folder, parent)


def is_secret(path: Path, parent: Path) -> bool:
    """Return whether a path must not reach a node: by its name, by that of its link's target, or as a private key.

    Args:
        path: where it was found.
        parent: the folder that it is in, without links.
    """
    target = path.resolve() if path.is_symlink() else parent / path.name
    if any(SECRET.search(str(one)) for one in (path, target)) or _is_private_key(target):
        return True
    names = (path.name, target.name)
    return any(SECRET_FILE.fullmatch(name) for name in names) and not path.is_dir()


def refuse_secret(folder: Path) -> None:
    """Refuse to send a folder that is among keys and passwords, where every file may be one.

    Raises:
        UsageError: names the folder.
    """
    if found := SECRET.search(str(folder.resolve())):
        raise UsageError(
            f"{folder} is in {found[1]}, where keys or passwords are: it is never sent to nodes",
            "put the program in a folder of its own",
        )


def refuse_home(folder: Path) -> None:
    """Refuse to send the home folder, or one that holds it, because a program lies there.

    Raises:
        UsageError: names the folder, and how to send it nevertheless.
    """
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home may raise
    if home.is_relative_to(folder.resolve()):
        raise UsageError(
            f"the program is in {folder}: all of your home folder would be sent to every node",
            f"put the program in a folder of its own, or send this one nevertheless: --folder {folder}",
        )


def _is_private_key(path: Path) -> bool:
    """Return whether a file whose name may be that of a private key is one; a certificate is not."""
    if not MAY_BE_KEY.fullmatch(path.name):
        return False
    try:
        with path.open("rb") as file:
            key = KEY_IN_JSON if path.suffix.lower() == ".json" else KEY
            return key.search(file.read(KEY_WITHIN_BYTES)) is not None
    except OSError:  # a folder, or what nobody can read and so is not sent either
        return False


def _is_loop(folder: Path) -> bool:
    """Return whether a link leads back to one of its parent folders."""
    if not folder.is_symlink():
        return False
    target = folder.resolve()
    return any(parent.resolve() == target for parent in folder.parents)
