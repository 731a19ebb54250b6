"""Tasks by name: a model and its data. To add one, write a file here (see `base`) and a line in TASKS.

Reading order: `base` (the interface), then any other. Pictures: `pictures` (common part), `fashion_mnist` (clothes),
`torchvision_pictures` (MNIST, CIFAR-10), `cnn` (their model). Text: `language` (bytes of Python's library), `gpt` (its
model). Reinforcement learning: `gymnasium_task` (environments), `ppo` (all ranks learn), `actor_learner` (interface:
one learns, others act), `impala` (actor-critic), `mapf` (path finding by DHC). A user's own: `user_task` (a function)
with `dataset_task` (model and two datasets). `draws` seeds and saves the random generators, `saved` is the content of a
checkpoint.
"""

from node.base.options import OptionError, require_options
from node.base.user_code import load
from node.tasks.base import AnyTask
from node.tasks.user_task import make_user_task

TASKS = {
    "fashion-mnist": "node.tasks.fashion_mnist:FashionMnist",
    "mnist": "node.tasks.torchvision_pictures:Mnist",
    "cifar-10": "node.tasks.torchvision_pictures:Cifar10",
    "language": "node.tasks.language:Language",
    "ppo": "node.tasks.ppo:Ppo",
    "impala": "node.tasks.impala:Impala",
    "mapf": "node.tasks.mapf:Mapf",
}


def task_class(name: str) -> type[AnyTask]:
    """Return the class of a task; import only its own module.

    Args:
        name: a key of TASKS, or a task of the user's own: `./mine.py:make_task`.

    Raises:
        OptionError: there is no such task, or the name is not a task.
        ModuleNotFoundError: the user's file imports a module that is not installed here.
    """
    found = load("task", name, TASKS)
    if isinstance(found, type):
        if not issubclass(found, AnyTask):
            raise OptionError(f"{name} is no task: derive it from node.tasks.base.Task")
        require_options(name, found)
        return found
    if not callable(found):
        raise OptionError(f"{name} is no function that makes a task, but {found!r}")
    return make_user_task(name, found)
