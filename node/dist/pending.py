"""A future of an exchange: its tensors are there once it is waited for."""

from collections.abc import Callable

from torch import Tensor


class Pending:
    """Waits for a tensor when it is called; from then on it has it. A checkpoint can hold it."""

    def __init__(self, wait: Callable[[], Tensor]) -> None:
        self._wait = wait

    def __call__(self) -> Tensor:
        """Wait for it, the first time; it is the same tensor each time."""
        tensor = self._wait()
        self._wait = lambda: tensor
        return tensor
