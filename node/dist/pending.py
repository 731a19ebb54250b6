"""A future of an exchange: its tensor is there once it has been waited for."""

from collections.abc import Callable

from torch import Tensor


class Pending:
    """A callable that waits for a tensor on its first call, and then keeps it. A checkpoint can store it."""

    def __init__(self, wait: Callable[[], Tensor]) -> None:
        self._wait = wait

    def __call__(self) -> Tensor:
        """Wait for the tensor on the first call; return the same tensor on each call."""
        tensor = self._wait()
        self._wait = lambda: tensor
        return tensor
