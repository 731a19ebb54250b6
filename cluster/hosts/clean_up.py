"""The command that removes what a cluster left on a host that did not answer. Pure values."""

import shlex

from cluster.base.paths import PROJECT_DIR
from cluster.base.spec import project_name
from cluster.engine.client import COMPOSE_PROJECT
from cluster.engine.compose import shared_volume
from cluster.hosts.bare_image import ENTER
from cluster.hosts.hosts_file import DOCKER_SOCKET, Host
from cluster.hosts.swarm_plan import INGRESS, MARK, overlay_name
from cluster.hosts.tunnel import route_options
from protocol.labels import LABEL_CLUSTER, WORKING_DIR


def clean_up_command(host: Host, cluster: str, *, manages: bool, leaves_swarm: bool) -> str:
    """Return the command that removes a cluster's containers and volume from a host, as a user types it here.

    Args:
        host: the host.
        cluster: the cluster's name.
        manages: whether the host may be the swarm's manager: the command then removes the network, too.
        leaves_swarm: whether the host may leave the swarm. It is typed later, so it checks again: it leaves only if
            the host has no other network of a swarm, and has the mark of ours, which goes with it.
    """
    docker = docker_words(host)
    network = overlay_name(cluster)
    steps = [
        f"{docker} rm -fv $({docker} ps -aq {_filters(cluster)})",
        f"{docker} volume rm {shared_volume(cluster)}",
        *([f"{docker} network rm {network}"] if manages else []),
    ]
    if leaves_swarm:
        overlays = f"{docker} network ls --filter driver=overlay --format {{{{.Name}}}}"
        others = f"{overlays} | grep -vxe {INGRESS} -e {network}"
        leave = f"{docker} volume rm {MARK} && {docker} swarm leave --force"
        steps.append(f'test -z "$({others})" && {leave}')
    return ssh_command(host, "; ".join(steps))


def bare_clean_up_command(host: Host, cluster: str) -> str:
    """Return the command that removes a cluster's nodes from a host without an engine, as a user types it here."""
    return ssh_command(host, f"{ENTER} remove-all {cluster} {shlex.quote(str(PROJECT_DIR))}")


def ssh_command(host: Host, remote: str) -> str:
    """Return the ssh command line that runs a shell command on a host, as a user types it."""
    return shlex.join(["ssh", *route_options(host), host.ssh, remote])


def _filters(cluster: str) -> str:
    """Return the filters that select our nodes: another checkout may have a cluster of this name there by then."""
    labels = {
        LABEL_CLUSTER: cluster,
        COMPOSE_PROJECT: project_name(cluster),
        WORKING_DIR: PROJECT_DIR,
    }
    return shlex.join(
        word for name, value in labels.items() for word in ("--filter", f"label={name}={value}")
    )


def docker_words(host: Host) -> str:
    """Return the docker command of a host, with its socket if that is not Docker's default."""
    if host.docker_socket == DOCKER_SOCKET:
        return "docker"
    return shlex.join(["docker", "--host", f"unix://{host.docker_socket}"])
