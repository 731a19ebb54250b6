"""Encodes a learner's parameters for its actors, which only act with them: whole, rounded, or only changes.

f32 is the parameters as they are. bf16 and int8 round each number, int8 in steps of a tensor's largest magnitude / 127.
delta has the same result as bf16: it sends the indices and new values of those numbers whose bf16 has changed since the
actor's version, as PULSE (arXiv 2602.03839) and TRL do; if that saves no bytes, it sends all numbers.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

KEPT_VERSIONS = 32  # versions that changes can start from
INT8_STEPS = 127
PLACE, VALUE, SCALE = "place", "value", ".scale"
State = Mapping[str, Tensor]


class Encoded(NamedTuple):
    """Parameters as bytes.

    Attributes:
        encoding: one of ENCODINGS; bf16 if `delta` sends all numbers.
        body: safetensors bytes.
        changed: for `delta`, the share of numbers that differ from the actor's version, if that is known; else None.
    """

    encoding: str
    body: bytes
    changed: float | None = None


class Encoder:
    """Encodes the parameters that a learner publishes.

    Args:
        encoding: one of ENCODINGS.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._versions: OrderedDict[int, State] = OrderedDict()
        self._whole: dict[int, Encoded] = {}
        self._latest_changes: dict[int, Encoded] = {}  # by the version that they apply to

    def publish(self, version: int, state: State) -> None:
        """Keep a copy of these parameters and encode it from now on."""
        self._whole.clear()
        self._latest_changes.clear()
        kind = torch.float32 if self._encoding in ("f32", "int8") else torch.bfloat16
        self._versions[version] = {
            name: value.detach().to("cpu", kind, copy=True) for name, value in state.items()
        }
        most = KEPT_VERSIONS if self._encoding == "delta" else 1
        while len(self._versions) > most:
            self._versions.popitem(last=False)

    @property
    def version(self) -> int:
        """The latest version."""
        return max(self._versions)

    def encode(self, have: int) -> Encoded:
        """Return the latest parameters, encoded for an actor that has version `have`."""
        latest = self._versions[self.version]
        changed: float | None = None
        if self._encoding == "delta" and have in self._versions:
            if have not in self._latest_changes:
                self._latest_changes[have] = _changes(self._versions[have], latest)
            if self._latest_changes[have].body:
                return self._latest_changes[have]
            changed = self._latest_changes[have].changed
        if self.version not in self._whole:
            self._whole[self.version] = _whole(self._encoding, latest)
        return self._whole[self.version]._replace(changed=changed)


def decode(encoding: str, body: bytes, model: torch.nn.Module) -> None:
    """Load into a model what `Encoder.encode` returned.

    Raises:
        ValueError: it does not fit the model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(body)
        if encoding == "delta":
            _apply(tensors, model)
            return
        if encoding == "int8":
            tensors = {
                name: value.float() * tensors[name + SCALE]
                for name, value in tensors.items()
                if not name.endswith(SCALE)
            }
        model.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, KeyError, IndexError) as error:
        raise ValueError(f"weights that do not fit: {str(error).partition(chr(10))[0]}") from None


def _whole(encoding: str, state: State) -> Encoded:
    from safetensors.torch import save

    if encoding != "int8":  # f32 and bf16 are kept as they are sent
        return Encoded("bf16" if encoding == "delta" else encoding, save(dict(state)))
    tensors = {}
    for name, value in state.items():
        scale = (value.abs().max() / INT8_STEPS).clamp(min=torch.finfo(torch.float32).tiny)
        tensors[name] = (value / scale).round().to(torch.int8)
        tensors[name + SCALE] = scale
    return Encoded(encoding, save(tensors))


def _changes(before: State, after: State) -> Encoded:
    """Encode the changes; the body is empty if all numbers would take no more bytes."""
    from safetensors.torch import save

    old, new = (torch.cat([v.flatten() for v in state.values()]) for state in (before, after))
    # Compare bits: NaN differs from itself.
    places = (old.view(torch.int16) != new.view(torch.int16)).nonzero().flatten().to(torch.int32)
    bytes_each = places.element_size() + new.element_size()
    is_smaller = len(places) * bytes_each < new.nbytes
    body = save({PLACE: places, VALUE: new[places.long()]}) if is_smaller else b""
    return Encoded("delta", body, len(places) / len(new))


def _apply(changes: State, model: torch.nn.Module) -> None:
    state = model.state_dict()
    flat = torch.cat([value.flatten() for value in state.values()])
    flat[changes[PLACE].long()] = changes[VALUE].to(flat.dtype)
    for value, part in zip(
        state.values(), flat.split([v.numel() for v in state.values()]), strict=True
    ):
        value.copy_(part.view_as(value))
