"""Translates the Docker SDK's exceptions into our errors: what happened, and what to try."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from cluster.base.errors import ClusterError, PrerequisiteError

INSTALL_DOCKER = (
    "apt-get install docker.io (Debian, Ubuntu), or follow Docker's own installation guide"
)


class StillInUse(ClusterError):
    """The engine refused to remove something that a container uses, which it may just be creating or removing."""


class Missing(ClusterError):
    """The engine does not have what it was asked about: it has just been removed, or was never there."""


@contextmanager
def engine_errors(what: str, start_it: str, *, at_first: bool = False) -> Iterator[None]:
    """Turn the SDK's exceptions into ours.

    `at_first`: this is the first call, so an engine that does not answer is a missing prerequisite, not a failure.
    """
    import docker.errors
    import requests.exceptions

    try:
        yield
    except docker.errors.NotFound as error:
        found = error.explanation or str(error)
        raise Missing(f"{what} refused: {found}", "python -m cluster.status") from error
    except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
        raise _translate(error, what, start_it, at_first=at_first) from error


def _translate(error: Exception, what: str, start_it: str, *, at_first: bool) -> ClusterError:
    text = str(error)
    if not at_first and "APIError" not in type(error).__name__:
        return ClusterError(
            f"{what} does not answer any more: {text}",
            f"{start_it}, then: python -m cluster.status",
        )
    if "Permission denied" in text or "PermissionError" in text:
        return PrerequisiteError(
            "Docker is here, but this user may not use it",
            "sudo usermod -aG docker $USER, then log in again",
        )
    if "APIError" in type(error).__name__:
        # 403 is what engines say of a network that a container is still connected to.
        in_use = getattr(error, "status_code", None) == 409 or "active endpoints" in text
        refusal = StillInUse if in_use else ClusterError
        return refusal(f"{what} refused: {text}", "python -m cluster.doctor")
    if shutil.which("docker") is None:
        return PrerequisiteError("no Docker here", INSTALL_DOCKER)
    return PrerequisiteError(f"{what} does not answer: {text}", start_it)
