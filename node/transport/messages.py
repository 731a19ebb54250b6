"""Messages between learner and actors: a header and a body, in frames small enough for heartbeats to work.

ZeroMQ's heartbeat counts every received frame as a sign of life, and on a slow link a frame of megabytes takes longer
than the heartbeat's timeout: so a body is sent in pieces. Arrays are in safetensors' format, which carries no code.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

PIECE_BYTES = 65536
MOST_BODY_BYTES = 1 << 30
MOST_COUNT, MOST_DIMENSIONS, LARGEST = 1 << 62, 8, 1e15
NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
# From an actor: it has (re)connected, experience, a request for weights, it has ended.
HELLO, EXPERIENCE, ASK, BYE = "hello", "experience", "ask", "bye"
# From the learner: an acknowledgement, weights, the rank to get them from, the end, and the answer to a goodbye.
ACKNOWLEDGED, WEIGHTS, FOLLOW = "acknowledged", "weights", "follow"
FINISHED, PARTED = "finished", "parted"
# In a broadcast, from the sender: a piece of weights after the head; no weights here apply to the receiver's version.
# From the receiver: a request for newer weights, now or once there are some.
SHARD, ELSEWHERE, SUBSCRIBE = "shard", "elsewhere", "subscribe"
KINDS = {
    *(HELLO, EXPERIENCE, ASK, BYE, ACKNOWLEDGED, WEIGHTS, FOLLOW, FINISHED, PARTED),
    *(SHARD, ELSEWHERE, SUBSCRIBE),
}
PURPOSES = {EXPERIENCE: "experience", WEIGHTS: "weights", SHARD: "weights"}
"""The purpose of the bytes of a kind; `control` for all other kinds."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        kind: one of KINDS.
        header: JSON values.
        body: larger data.
    """

    kind: str
    header: Mapping[str, object] = field(default_factory=dict)
    body: bytes = b""

    @property
    def purpose(self) -> str:
        """The purpose of its bytes: experience, weights or control."""
        return PURPOSES.get(self.kind, "control")

    def frames(self) -> list[bytes]:
        """Return the frames that are sent: the header, then the body in pieces."""
        pieces = range(0, len(self.body), PIECE_BYTES)
        head = json.dumps({**self.header, "kind": self.kind}).encode()
        return [head, *(self.body[start : start + PIECE_BYTES] for start in pieces)]


def read_message(frames: Sequence[bytes]) -> Message:
    """Return the message whose `Message.frames` these are.

    Raises:
        ValueError: they are not a message.
    """
    if not frames or sum(map(len, frames)) > MOST_BODY_BYTES:
        raise ValueError("a message of no frames, or of too many bytes")
    try:
        header = json.loads(frames[0])
    except RecursionError:
        raise ValueError("a message of endless depth") from None
    kind = header.pop("kind", None) if isinstance(header, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError("a message of no kind")
    return Message(kind, header, b"".join(frames[1:]))


@dataclass(frozen=True)
class Experience:
    """A piece of an actor's experience: an episode, or a fixed number of steps.

    Attributes:
        arrays: arrays over its steps, by name. Two exist for every task: `version` of the weights that acted, int64,
            and `made_at_s`, Unix time, float64; both of shape (steps,).
        figures: figures of the piece: results of an episode; `env_steps` if a step is one of several environments.
    """

    arrays: Mapping[str, np.ndarray]
    figures: Mapping[str, float]

    @property
    def steps(self) -> int:
        """Number of steps, each perhaps of several environments."""
        return len(self.arrays["version"])

    @property
    def env_steps(self) -> int:
        """Number of steps of all its environments together."""
        return int(self.figures.get("env_steps", self.steps))


ArraySpec = tuple[type[np.generic] | type[bool], Sequence[int]]
"""Type and shape of an array."""
Spec = Mapping[str, ArraySpec]
"""Types and shapes of arrays, by name."""


def require_arrays(arrays: Mapping[str, np.ndarray], spec: Spec) -> None:
    """Check that arrays have the expected types and shapes: an actor may be of another version, or hostile.

    Raises:
        ValueError: one is missing, of another type or shape, or has a value that is not finite.
    """
    for name, (kind, shape) in spec.items():
        array = arrays.get(name)
        if array is None or array.dtype != kind or array.shape != tuple(shape):
            raise ValueError(f"experience whose {name} is not of shape {tuple(shape)}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"experience whose {name} has something that is no number")


def pack_arrays(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, list[int]], bytes]:
    """Return the shapes of bool arrays, which the header must carry, and all arrays as bytes, bools packed as bits."""
    from safetensors.numpy import save

    shapes = {name: list(array.shape) for name, array in arrays.items() if array.dtype == bool}
    packed = {name: np.packbits(a) if name in shapes else a for name, a in arrays.items()}
    return shapes, save({name: np.ascontiguousarray(array) for name, array in packed.items()})


def unpack_arrays(shapes: Mapping[str, Sequence[int]], body: bytes) -> dict[str, np.ndarray]:
    """Return the arrays that `pack_arrays` packed.

    Raises:
        ValueError: the bytes are damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays: dict[str, np.ndarray] = load(body)
        for name, shape in shapes.items():
            bits = arrays[name]
            if bits.dtype != np.uint8 or len(bits) != -(-math.prod(shape) // 8):
                raise ValueError(f"bits of {name} that are not {shape}")
            arrays[name] = np.unpackbits(bits, count=math.prod(shape)).reshape(shape).astype(bool)
    except (SafetensorError, KeyError, TypeError) as error:
        raise ValueError(f"arrays that are none: {error}") from None
    return arrays


def read_count(header: Mapping[str, object], name: str) -> int:
    """Return an integer of a header, -1 or more.

    Raises:
        ValueError: it is not one.
    """
    value = header.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < MOST_COUNT:
        raise ValueError(f"a message whose {name} is no number")
    return value


def read_text(header: Mapping[str, object], name: str) -> str:
    """Return a string of a header.

    Raises:
        ValueError: it is not one.
    """
    value = header.get(name)
    if not isinstance(value, str):
        raise ValueError(f"a message whose {name} is no text")
    return value


def read_time(header: Mapping[str, object], name: str) -> float:
    """Return a Unix time of a header.

    Raises:
        ValueError: it is not one.
    """
    value = header.get(name)
    if not isinstance(value, float) or not math.isfinite(value):
        raise ValueError(f"a message whose {name} is no time")
    return value


def read_advice(header: Mapping[str, object]) -> Mapping[str, object]:
    """Return the `advice` of a header: JSON values by name.

    Raises:
        ValueError: it is not an object.
    """
    advice = header.get("advice")
    if not isinstance(advice, dict):
        raise ValueError("a message without advice")
    return advice


def read_figures(header: Mapping[str, object]) -> dict[str, float]:
    """Return the `figures` of a header: finite numbers by name.

    Raises:
        ValueError: they are not.
    """
    figures = header.get("figures")
    if not isinstance(figures, dict) or not all(map(_is_figure, figures.items())):
        raise ValueError("a message whose figures are none")
    return figures


def read_shapes(header: Mapping[str, object]) -> dict[str, list[int]]:
    """Return the `shapes` of a header, as `pack_arrays` returned them.

    Raises:
        ValueError: they are not shapes.
    """
    shapes = header.get("shapes")
    if not isinstance(shapes, dict) or not all(map(_is_shape, shapes.values())):
        raise ValueError("a message whose shapes are none")
    return shapes


def _is_figure(item: tuple[str, object]) -> bool:
    name, value = item
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return bool(NAME.fullmatch(name)) and abs(value) < LARGEST


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= MOST_DIMENSIONS
        and all(type(size) is int and 0 <= size < MOST_COUNT for size in value)
    )
