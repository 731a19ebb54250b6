"""The SSH keys of a cluster, generated once and kept in its state folder.

One key pair for logins, and one host key per node:

    .gradwire/NAME/                0700
      id_ed25519                   0600  the host logs in with it
      known_hosts                        every node's host key, under all of the node's names
      ssh_config                         for the plain OpenSSH client: ssh -F .gradwire/NAME/ssh_config node2
      node1/                       0700  mounted read-only into node1 alone
        ssh_host_ed25519_key       0600
        authorized_keys  id_ed25519  known_hosts     so that `ssh node2` works on node1 too

Keys are never in the image or in git.
"""

from collections.abc import Mapping
from pathlib import Path

from cluster.base.files import write_atomically, write_text
from cluster.base.spec import ClusterSpec, Node

HOST_KEY = "ssh_host_ed25519_key"
LOGIN_KEY = "id_ed25519"


NO_COMMANDS: Mapping[str, str] = {}


def ensure_keys(spec: ClusterSpec, proxy_commands: Mapping[str, str] = NO_COMMANDS) -> set[str]:
    """Generate missing and damaged keys and keep the others. `proxy_commands` as for `ssh_config`.

    Returns:
        The nodes that must be created with these new keys; if they exist already, logins to them no longer work.

    Raises:
        PermissionError: the state folder belongs to another user.
    """
    spec.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    login_is_new = _ensure_pair(spec.state_dir / LOGIN_KEY)
    new = {n.name for n in spec.nodes if _ensure_host_key(spec.state_dir / n.name) or login_is_new}
    known_hosts = "".join(_known_hosts_line(spec.state_dir, node) for node in spec.nodes)
    write_text(spec.state_dir / "known_hosts", known_hosts)
    write_text(spec.state_dir / "ssh_config", ssh_config(spec, proxy_commands))
    for node in spec.nodes:
        _fill_node_folder(spec.state_dir, node, known_hosts)
    return new


def ssh_config(spec: ClusterSpec, proxy_commands: Mapping[str, str] = NO_COMMANDS) -> str:
    """Return a configuration with which the OpenSSH client reaches every node by name.

    Args:
        spec: the cluster.
        proxy_commands: by node, the command that connects to it through its host; nodes of this machine have none.
    """
    common = [
        "Host *",
        "  User root",
        f"  IdentityFile {_quoted(spec.state_dir / LOGIN_KEY)}",
        "  IdentitiesOnly yes",
        f"  UserKnownHostsFile {_quoted(spec.state_dir / 'known_hosts')}",
        "  StrictHostKeyChecking yes",
    ]
    nodes = [_host_block(node, proxy_commands.get(node.name, "")) for node in spec.nodes]
    return "\n".join([*nodes, *common]) + "\n"


def _host_block(node: Node, proxy_command: str) -> str:
    lines = [f"Host {node.name}", f"  HostName {node.ssh_host}", f"  Port {node.ssh_port}"]
    return "\n".join([*lines, *([f"  ProxyCommand {proxy_command}"] if proxy_command else [])])


def _quoted(path: Path) -> str:
    """Return a path quoted for ssh_config, in which % begins a token and quotes and backslashes must be escaped."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{text}"'


def _ensure_host_key(folder: Path) -> bool:
    folder.mkdir(mode=0o700, exist_ok=True)
    return _ensure_pair(folder / HOST_KEY)


def _ensure_pair(path: Path) -> bool:
    """Generate an ed25519 pair at `path` and `path.pub` unless there is one; return whether it did."""
    public = path.with_name(path.name + ".pub")
    if path.exists() and public.exists() and _is_pair(path, public):
        return False
    # Imported here: every verb uses this module, but few generate keys.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    write_atomically(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    words = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n"
    write_atomically(public, words, 0o644)
    return True


def _is_pair(private: Path, public: Path) -> bool:
    """Return whether two files are the halves of one ed25519 key; a power cut may leave either of them cut short."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_ssh_private_key,
    )

    content = private.read_bytes()
    try:
        words = public.read_text().split()[:2]  # without a comment
        key = load_ssh_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: it has a passphrase
        return False
    if not isinstance(key, Ed25519PrivateKey) or not content.endswith(b"\n"):  # OpenSSH needs that
        return False
    own = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return words == own.decode().split()


def _fill_node_folder(state_dir: Path, node: Node, known_hosts: str) -> None:
    folder = state_dir / node.name
    write_text(folder / "authorized_keys", (state_dir / f"{LOGIN_KEY}.pub").read_text())
    write_atomically(folder / LOGIN_KEY, (state_dir / LOGIN_KEY).read_bytes())
    write_text(folder / "known_hosts", known_hosts)


def _known_hosts_line(state_dir: Path, node: Node) -> str:
    public = (state_dir / node.name / f"{HOST_KEY}.pub").read_text().strip()
    return f"{node.name},{node.address},[{node.ssh_host}]:{node.ssh_port} {public}\n"
