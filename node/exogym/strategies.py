"""EXO Gym's strategies by their names and arguments: each returns flags of `python -m node.train`.

So a script's fit and the command line mean the same, and are checked by the same code. An argument that does not
exist raises TypeError; one that has no counterpart here, or a value out of its bounds, raises OptionError. Nothing is
ignored.
"""
# Functions have the names of EXO Gym's classes, so that a script need not change its calls.
# ruff: noqa: N802, N803

from collections.abc import Mapping
from dataclasses import dataclass

from node.base.options import OptionError, Value, unknown

# Our optimisers by torch's names. Adam is AdamW without weight decay.
OPTIMIZERS = {"adamw": "adamw", "adam": "adamw", "sgd": "sgd"}
SCHEDULE = "lambda_cosine"
SCHEDULE_KEYS = ("warmup_steps", "cosine_anneal")


@dataclass(frozen=True)
class Chosen:
    """A strategy with its options and the optimiser, as flags of node.train."""

    flags: tuple[str, ...]


@dataclass(frozen=True)
class OptimSpec:
    """An optimiser and its settings, under torch's names and with torch's defaults.

    Attributes:
        cls: torch.optim.AdamW, Adam or SGD, or one of these as a lower-case word.
        lr: learning rate.
        weight_decay: None: torch's default, 0.01 for AdamW, else 0.
        momentum: momentum of SGD.
        nesterov: for an outer SGD, in DiLoCo.
    """

    cls: type | str = "adamw"
    lr: float = 1e-3
    weight_decay: float | None = None
    momentum: float = 0.0
    nesterov: bool = False

    @property
    def name(self) -> str:
        """The optimiser's name in lower case.

        Raises:
            OptionError: there is no such optimiser here.
        """
        word = self.cls if isinstance(self.cls, str) else self.cls.__name__
        if word.lower() not in OPTIMIZERS:
            raise unknown("optimizer", word, OPTIMIZERS)
        if not isinstance(self.cls, str) and not self.cls.__module__.startswith("torch.optim."):
            raise OptionError(
                f"OptimSpec: {word} of {self.cls.__module__} is not torch.optim's, which the ranks "
                f"would step with: give torch.optim.{word}"
            )
        return word.lower()

    def flags(self) -> list[str]:
        """Return the flags of node.train.

        Raises:
            OptionError: there is no such optimiser here, or it does not have one of the settings.
        """
        name = self.name
        if self.nesterov:
            raise OptionError("OptimSpec: nesterov is for outer_optim_spec alone")
        if name == "adam" and self.weight_decay:
            raise OptionError("OptimSpec: Adam with weight_decay: take torch.optim.AdamW")
        decay = 0.0 if name == "adam" else self.weight_decay
        flags = ["--optimizer", OPTIMIZERS[name], "--lr", str(self.lr)]
        flags += [] if decay is None else ["--weight-decay", str(decay)]
        return flags + (["--momentum", str(self.momentum)] if self.momentum else [])


def SimpleReduceStrategy(
    optim_spec: OptimSpec | str | None = None,
    *,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `ddp`: the mean of all gradients, every step."""
    return _choose("ddp", {}, optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def FedAvgStrategy(
    optim_spec: OptimSpec | str | None = None,
    *,
    island_size: int | None = None,
    H: int = 1,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `fedavg`: the mean of all parameters, or of an island's, every H steps."""
    options = {"H": H, "island_size": island_size or 0}
    return _choose("fedavg", options, optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def DiLoCoStrategy(
    optim_spec: OptimSpec | str | None = None,
    outer_optim_spec: OptimSpec | str | None = None,
    *,
    H: int = 100,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `diloco`: an outer step with Nesterov momentum every H steps."""
    options = {"H": H, **_outer(outer_optim_spec)}
    return _choose("diloco", options, optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def SPARTAStrategy(
    optim_spec: OptimSpec | str | None = None,
    *,
    p_sparta: float = 0.005,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `sparta`: the mean of a share p_sparta of the parameters, every step."""
    options = {"p": p_sparta}
    return _choose("sparta", options, optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def SPARTADiLoCoStrategy(
    optim_spec: OptimSpec | str | None = None,
    outer_optim_spec: OptimSpec | str | None = None,
    *,
    p_sparta: float = 0.005,
    H: int = 100,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `sparta-diloco`: SPARTA and DiLoCo together."""
    options = {"H": H, "p": p_sparta, **_outer(outer_optim_spec)}
    name = "sparta-diloco"
    return _choose(name, options, optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def DeMoStrategy(
    optim_spec: OptimSpec | str | None = None,
    *,
    compression_decay: float = 0.999,
    compression_topk: int = 32,
    compression_chunk: int = 64,
    weight_decay: float | None = None,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return our `demo`, which needs SGD without momentum, its default if there is no optim_spec."""
    if optim_spec is not None and weight_decay is not None:
        raise OptionError("DeMoStrategy: weight_decay beside optim_spec: put it into that")
    spec = optim_spec or OptimSpec("sgd", weight_decay=weight_decay)
    options = {
        "decay": compression_decay,
        "topk": compression_topk,
        "chunk": compression_chunk,
    }
    return _choose("demo", options, spec, max_norm, lr_scheduler, lr_scheduler_kwargs)


def own_strategy(
    name: str,
    options: Mapping[str, Value] | None = None,
    *,
    optim_spec: OptimSpec | str | None = None,
    max_norm: float | None = None,
    lr_scheduler: str | None = None,
    lr_scheduler_kwargs: Mapping[str, float] | None = None,
) -> Chosen:
    """Return any strategy of node.strategies by its name, or one of the user's: `FILE.py:CLASS`.

    Args:
        name: as `--strategy` takes it; f"{__file__}:Mine" is one in the script itself.
        options: as `--set` takes them.
        optim_spec: the optimiser of every rank; None: AdamW, or the one that the strategy needs.
        max_norm: largest norm of the gradient.
        lr_scheduler: "lambda_cosine", or None.
        lr_scheduler_kwargs: its `warmup_steps` and `cosine_anneal`.
    """
    return _choose(
        name, dict(options or {}), optim_spec, max_norm, lr_scheduler, lr_scheduler_kwargs
    )


def _choose(
    name: str,
    options: Mapping[str, Value],
    optim_spec: OptimSpec | str | None,
    max_norm: float | None,
    lr_scheduler: str | None,
    lr_scheduler_kwargs: Mapping[str, float] | None,
) -> Chosen:
    spec = _spec("optim_spec", optim_spec)
    # The strategy decides which optimiser is the default; EXO Gym's learning rate is for any.
    optimizer = spec.flags() if spec else ["--lr", str(OptimSpec.lr)]
    settings = [word for key, value in options.items() for word in ("--set", f"{key}={value}")]
    clip = ["--clip-norm", str(max_norm)] if max_norm is not None else []
    schedule = _schedule(lr_scheduler, dict(lr_scheduler_kwargs or {}))
    return Chosen(("--strategy", name, *settings, *optimizer, *clip, *schedule))


def _spec(argument: str, given: OptimSpec | str | None) -> OptimSpec | None:
    """Return an optimiser that may be given by its name."""
    spec = OptimSpec(given) if isinstance(given, str) else given
    if not isinstance(spec, OptimSpec | None):
        raise OptionError(f"{argument} must be an OptimSpec of node.exogym, not {spec!r}")
    return spec


def _outer(given: OptimSpec | str | None) -> dict[str, Value]:
    """Return DiLoCo's options for an outer optimiser; EXO Gym's default is also ours."""
    spec = _spec("outer_optim_spec", given)
    if spec is None:
        return {}
    if spec.name != "sgd" or spec.weight_decay or (spec.momentum and not spec.nesterov):
        raise OptionError(
            "outer_optim_spec must be OptimSpec(torch.optim.SGD, lr=…, momentum=…, nesterov=True)"
        )
    return {"outer_lr": spec.lr, "outer_momentum": spec.momentum}


def _schedule(name: str | None, settings: dict[str, float]) -> list[str]:
    if name is None and settings:
        raise OptionError(f"lr_scheduler_kwargs without lr_scheduler={SCHEDULE!r}")
    if name not in (None, SCHEDULE):
        raise unknown("lr_scheduler", str(name), [SCHEDULE])
    for key in settings:
        if key == "max_steps":
            raise OptionError(
                "lr_scheduler_kwargs: max_steps is an argument of fit, with which the schedule ends"
            )
        if key not in SCHEDULE_KEYS:
            raise unknown("key of lr_scheduler_kwargs", key, SCHEDULE_KEYS)
    warmup = settings.get("warmup_steps", 0)
    if not (isinstance(warmup, int | float) and float(warmup).is_integer()):
        raise OptionError(f"lr_scheduler_kwargs: warmup_steps must be a whole number, not {warmup}")
    flags = ["--warmup-steps", str(int(warmup))] if warmup else []
    return flags + (["--lr-schedule", "cosine"] if settings.get("cosine_anneal") else [])
