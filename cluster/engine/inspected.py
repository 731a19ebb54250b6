"""The parts of `docker inspect`'s output that we read, with the engine's own names."""

from typing import TypedDict


class DeviceRequest(TypedDict, total=False):
    """Devices that a container was given."""

    Capabilities: list[list[str]] | None
    DeviceIDs: list[str] | None


class HostConfig(TypedDict, total=False):
    """A container's creation options and resource limits; 0 is no limit."""

    CpuQuota: int
    CpuPeriod: int
    NanoCpus: int
    Memory: int
    DeviceRequests: list[DeviceRequest] | None
    Sysctls: dict[str, str] | None


class ContainerState(TypedDict, total=False):
    """Whether a container runs, and how it ended."""

    Running: bool
    Paused: bool
    OOMKilled: bool
    ExitCode: int
    StartedAt: str
    """RFC 3339."""


class NetworkSettings(TypedDict, total=False):
    """The networks that a container is connected to, by name."""

    Networks: dict[str, object]


class ImageConfig(TypedDict, total=False):
    """An image's configuration."""

    Labels: dict[str, str] | None
    Env: list[str] | None


class RootFS(TypedDict, total=False):
    """The layers of an image, by digest."""

    Layers: list[str] | None


class Image(TypedDict):
    """An image."""

    Id: str
    Config: ImageConfig
    RootFS: RootFS


class Inspected(TypedDict):
    """A container."""

    Name: str
    State: ContainerState
    HostConfig: HostConfig
    NetworkSettings: NetworkSettings
