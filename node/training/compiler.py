"""torch's compiler, which is imported only where something is compiled.

Every optimizer of torch imports torch._dynamo when it is made, for functions that do nothing where nothing is
compiled. That import takes more than 1 s of a processor (700 modules, sympy among them), in each rank.
"""

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

NAME = "torch._dynamo"


class DeferredCompiler(ModuleType):
    """Stands in for torch._dynamo until anything is asked of it that an optimizer does not ask.

    What it has are the three things that torch.optim and init_process_group use of torch 2.6 to 2.9; all else imports
    the real module, which takes its place.
    """

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__spec__ = find_spec(NAME)
        self.__file__ = self.__spec__.origin if self.__spec__ else None
        self.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
        self._left_alone: list[Callable[..., object]] = []

    def graph_break(self, msg: str = "") -> None:
        """Nothing is compiled: there is no graph to end."""

    def disable(
        self, fn: Callable[..., object] | None = None, *given: object, **options: object
    ) -> object:
        """As torch._dynamo.disable: a function of an optimizer runs as it is while nothing is compiled."""
        if fn is None or not fn.__module__.startswith("torch.optim"):
            return self._import().disable(fn, *given, **options)
        self._left_alone.append(fn)
        return fn

    def __getattr__(self, name: str) -> object:
        return getattr(self._import(), name)

    def _import(self) -> ModuleType:
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
            for fn in self._left_alone:  # torch._compile asks again, and gets the real answer
                fn.__dict__.pop("__dynamo_disable", None)
        return importlib.import_module(NAME)


def defer_compiler() -> None:
    """From now on import torch._dynamo when it is needed; where it is there already, nothing changes."""
    if NAME not in sys.modules:
        sys.modules[NAME] = DeferredCompiler()
