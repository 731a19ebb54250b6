"""The part that ppo and impala share: environments of gymnasium, by name or of the user's own.

For an environment of your own, derive a task and make the environment there (`--task ./mine.py:Walk`):

    from dataclasses import dataclass

    from node.tasks.ppo import Ppo


    @dataclass
    class Walk(Ppo):
        def make_environment(self):
            import gymnasium  # here, so that a machine without it can check the options

            return gymnasium.wrappers.TimeLimit(MyWalker(), 500)

Each call must return another environment, whose episodes end at some time. One seed must always lead to the same
episode: environments draw from `self.np_random` alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from node.base.options import OptionError, Value
from node.rl.presets import needed_packages
from node.tasks.base import AnyTask

if TYPE_CHECKING:
    import gymnasium


class GymnasiumTask(AnyTask):
    """A task in environments of gymnasium.

    Attributes:
        env: the name of the environment: an option.
    """

    env: str

    def make_environment(self) -> "gymnasium.Env":
        """Return a new environment: the one that `env` names, unless a derived task makes one of its own."""
        import gymnasium

        return gymnasium.make(self.env)

    @classmethod
    def has_own_environment(cls) -> bool:
        """Return whether `env` says nothing, because a derived task makes its environments itself."""
        return cls.make_environment is not GymnasiumTask.make_environment

    @property
    def environment_name(self) -> str:
        """The name of the environment, or of the task that makes it."""
        return type(self).__name__ if self.has_own_environment() else self.env

    @property
    def needed_packages(self) -> Mapping[str, str]:
        """The packages that the environment needs."""
        return {} if self.has_own_environment() else needed_packages(self.env)

    @classmethod
    def option_defaults(cls, settings: Mapping[str, str]) -> Mapping[str, Value]:
        """Return the defaults of options; `env` is the name of a task that makes its own environment.

        Raises:
            OptionError: an environment is named, but the task makes its own.
        """
        own = cls.has_own_environment()
        if own and "env" in settings:
            raise OptionError(f"env={settings['env']}: {cls.__name__} makes its own environment")
        return {**super().option_defaults(settings), **({"env": cls.__name__} if own else {})}
