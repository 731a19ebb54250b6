"""Defers parts of torch that only its compiler needs until something is compiled.

Every optimizer of torch imports torch._dynamo when it is created, for functions that do nothing unless something is
compiled. That import takes more than 1 s of CPU time (700 modules, sympy among them) in each rank. And `import torch`
spends a third of its time on kernels for meta tensors, which have shapes and no values: nobody has such tensors unless
something is compiled, or a model is made on the device `meta`.
"""

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

NAME = "torch._dynamo"
META_KERNELS = "torch._meta_registrations"


class DeferredCompiler(ModuleType):
    """A stand-in for torch._dynamo until more is asked of it than an optimizer asks.

    It has the three things that torch.optim and init_process_group of torch 2.6 to 2.9 use; anything else imports the
    real module, which takes its place.
    """

    def __init__(self) -> None:
        super().__init__(NAME)
        self.__spec__ = find_spec(NAME)
        self.__file__ = self.__spec__.origin if self.__spec__ else None
        self.trace_rules = SimpleNamespace(clear_lru_cache=lambda: None)
        self._left_alone: list[Callable[..., object]] = []

    def graph_break(self, msg: str = "") -> None:
        """Do nothing: nothing is compiled, so there is no graph to end."""

    def disable(
        self, fn: Callable[..., object] | None = None, *given: object, **options: object
    ) -> object:
        """Act as torch._dynamo.disable: return an optimizer's function as it is while nothing is compiled."""
        if fn is None or not fn.__module__.startswith("torch.optim"):
            return self._import().disable(fn, *given, **options)
        self._left_alone.append(fn)
        return fn

    def __getattr__(self, name: str) -> object:
        return getattr(self._import(), name)

    def _import(self) -> ModuleType:
        if sys.modules.get(NAME) is self:
            del sys.modules[NAME]
            for fn in self._left_alone:  # torch._compile asks again, now the real module
                fn.__dict__.pop("__dynamo_disable", None)
            if isinstance(sys.modules.get(META_KERNELS), DeferredMetaKernels):
                del sys.modules[META_KERNELS]
                importlib.import_module(META_KERNELS)
        return importlib.import_module(NAME)


class DeferredMetaKernels(ModuleType):
    """A stand-in for the module that torch imports last, for what it registers."""


def defer_meta_kernels() -> None:
    """Let torch, if it is not yet imported, register its kernels for meta tensors only when something is compiled.

    Not for a process with code of the user's, which may make such tensors without compiling anything.
    """
    if "torch" not in sys.modules:
        sys.modules[META_KERNELS] = DeferredMetaKernels(META_KERNELS)


def defer_compiler() -> None:
    """Import torch._dynamo only when it is needed, from now on; no effect if it is already imported."""
    if NAME not in sys.modules:
        sys.modules[NAME] = DeferredCompiler()
