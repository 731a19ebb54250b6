"""Tests of tasks and their samples: shards, tasks with files, and users' tasks."""

import gzip
import inspect
import textwrap

import numpy
import pytest
import torch
from conftest import torchrun_environ
from torch.utils.data import Subset, TensorDataset

from node.base.options import OptionError
from node.tasks import task_class, user_task
from node.tasks.dataset_task import DatasetTask
from node.tasks.fashion_mnist import FashionMnist, read_idx
from node.tasks.language import Language, text_files
from node.training.config import parse_config
from node.training.optim import make_optimizer, set_learning_rate
from node.training.shards import dirichlet_shards, even_parts, make_shard

LABELS = torch.arange(3000) % 10
TRAIN = ("--optimizer", "sgd", "--lr", "0.05", "--dropout", "0", "--steps", "4")


def classes_of(samples):
    return torch.bincount(LABELS[samples], minlength=10)


@pytest.mark.parametrize("ranks", [1, 3, 8])
@pytest.mark.parametrize("alpha", [0.1, 0.3, 100])
def test_every_sample_belongs_to_exactly_one_rank(ranks, alpha):
    shards = dirichlet_shards(LABELS, ranks, alpha, seed=1, least=16)
    assert torch.equal(torch.cat(shards).sort().values, torch.arange(3000))
    assert min(map(len, shards)) >= 16
    again = dirichlet_shards(LABELS, ranks, alpha, seed=1, least=16)
    assert all(map(torch.equal, shards, again))


def test_alpha_says_how_skewed_the_classes_are():
    def skew(alpha):
        """Return the share of a rank's largest class, averaged over ranks and seeds."""
        shards = [s for seed in range(20) for s in dirichlet_shards(LABELS, 4, alpha, seed, 1)]
        return sum(float(classes_of(s).max() / len(s)) for s in shards) / len(shards)

    assert 0.1 <= skew(1000) < 0.12 < skew(1) < 0.35 < skew(0.1)


def test_another_seed_gives_other_shards():
    one, other = (dirichlet_shards(LABELS, 2, 0.3, seed, 1)[0].tolist() for seed in (1, 2))
    assert one != other


@pytest.mark.computes
@pytest.mark.parametrize(("asked", "tested"), [(0, 30), (7, 7), (99, 30)])
def test_a_test_may_be_on_some_of_the_pictures(asked, tested, monkeypatch):
    pictures, classes = torch.zeros(30, 1, 28, 28, dtype=torch.uint8), torch.arange(30) % 10
    monkeypatch.setattr(FashionMnist, "read", lambda *_, train: (pictures, classes))
    task = FashionMnist(test_pictures=asked)
    task.load(None)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10))
    right = torch.nn.functional.one_hot(torch.tensor([3]), 10)[0]
    model[1].bias.data, model[1].weight.data = right.float(), torch.zeros(10, 784)
    found = task.evaluate(model, torch.device("cpu"))["test_accuracy"]
    assert found == pytest.approx(int((classes[:tested] == 3).sum()) / tested)


def test_pictures_are_identified_by_their_bytes_and_their_classes(monkeypatch):
    def seen(value, label):
        pictures, classes = torch.zeros(30, 1, 28, 28, dtype=torch.uint8), torch.arange(30) % 10
        pictures[-1, 0, -1, -1], classes[-1] = value, label
        monkeypatch.setattr(FashionMnist, "read", lambda *_, train: (pictures, classes))
        task = FashionMnist()
        task.load(None)
        return task.fingerprint()

    assert seen(0, 9) == seen(0, 9)
    assert len({seen(0, 9), seen(1, 9), seen(0, 8)}) == 3


def test_alpha_too_small_for_a_batch_each_is_said():
    with pytest.raises(OptionError, match="--alpha 1e-05 leaves one of 20 ranks without 64"):
        dirichlet_shards(LABELS, 20, 1e-5, seed=1, least=64)


def test_a_shard_is_all_used_once_an_epoch_in_a_new_order():
    environ = torchrun_environ(1, 3, 1)
    config = parse_config(["--shard", "dirichlet", "--batch-size", "16"], environ)
    shard = make_shard(config, 3000, LABELS)
    whole = dirichlet_shards(LABELS, 3, 0.3, 1, 16)[1]
    assert shard.size == len(whole)
    steps = shard.size // 16
    first, second = (
        [n for step in range(start, start + steps) for n in shard.take(step).tolist()]
        for start in (1, 1 + steps)
    )
    assert len(set(first)) == len(first) == 16 * steps
    assert set(first) <= set(whole.tolist())
    assert first != second


def test_a_fixed_shard_stays_with_its_rank_and_an_even_one_does_not():
    """A rank of federated learning has data of its own; torch's DistributedSampler deals anew in each epoch."""

    def epochs(kind, rank):
        config = parse_config(["--shard", kind, "--batch-size", "16"], torchrun_environ(rank, 3, 1))
        shard = make_shard(config, 3000, LABELS)
        steps = shard.size // 16
        starts = (1, 1 + steps)
        return [{int(n) for k in range(steps) for n in shard.take(at + k)} for at in starts]

    parts = even_parts(3000, 3, 1)
    assert sorted(torch.cat(parts).tolist()) == list(range(3000))
    assert [len(part) for part in even_parts(10, 3, 1)] == [4, 3, 3]
    for rank, part in enumerate(parts):
        assert all(seen <= set(part.tolist()) for seen in epochs("fixed", rank))
    first, second = epochs("iid", 0)
    assert len(first & second) < len(first) / 2


def test_samples_weigh_in_fedavg_as_a_rank_has_them(run):
    """With skewed shards, sizes differ and so do the two averages; with even shards they do not."""

    def parameters(*flags):
        return run(2, *TRAIN, "--batch-size", "8", "--set", "H=2", *flags).parameters[0]

    skewed = ("--shard", "dirichlet")
    samples = ("--set", "weights=samples")
    assert float((parameters(*skewed) - parameters(*skewed, *samples)).abs().max()) > 1e-4
    assert float((parameters() - parameters(*samples)).abs().max()) < 1e-5


@pytest.mark.parametrize("settings", [[], ["--set", "bucket_mb=1", "--set", "overlap=yes"]])
def test_two_batches_of_8_accumulated_are_one_of_16(run, settings):
    common = (*TRAIN, "--strategy", "ddp")
    double = {"DEFAULT_DTYPE": "float64"}
    two = run(2, *common, *settings, "--batch-size", "8", "--accumulate", "2", environ=double)
    one = run(2, *common, "--batch-size", "16", environ=double)
    assert float((two.parameters[0] - one.parameters[0]).abs().max()) < 1e-9
    losses = [[step["loss"] for step in ranks.of("step")] for ranks in (two, one)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)
    assert two.end["sent_bytes"] == one.end["sent_bytes"]


def test_what_is_clipped_is_what_the_optimizer_steps_with(run):
    """One step of SGD moves the parameters by lr times the largest gradient norm that is allowed."""
    flags = (
        "--batch-size",
        "8",
        "--optimizer",
        "sgd",
        "--lr",
        "1",
        "--dropout",
        "0",
        "--strategy",
        "ddp",
    )
    environ = {"DEFAULT_DTYPE": "float64"}

    def after(steps, clip):
        ranks = run(2, *flags, "--steps", steps, "--clip-norm", clip, environ=environ)
        return ranks.parameters[0]

    start = after("1", "1e-30")
    assert float((after("1", "0.01") - start).norm()) == pytest.approx(0.01, rel=1e-6)
    assert float((after("1", "0") - start).norm()) > 0.1


def test_a_warm_up_and_a_schedule_set_what_the_optimizer_steps_with():
    config = parse_config(["--warmup-steps", "10", "--lr-schedule", "cosine"], {})
    optimizer = make_optimizer(config, torch.nn.Linear(1, 1))
    rates = []
    for step in (1, 10, 200):
        set_learning_rate(optimizer, config, step)
        rates.append(optimizer.param_groups[0]["lr"] / config.lr)
    assert rates == pytest.approx([0.1, 1, 0.1])


def test_the_text_is_split_by_file_and_its_bytes_are_pythons(data_dir):
    train, held_out = text_files(data_dir)
    assert len(train) + len(held_out) == 40
    assert held_out
    assert not set(train) & set(held_out)
    task = Language()
    task.load(data_dir)
    batch = task.batch(torch.arange(2), torch.device("cpu"))
    assert batch.shape == (2, 65)
    text = b"".join(path.read_bytes() for path in train)
    assert bytes(batch[0].tolist()) == text[:65]
    assert bytes(batch[1].tolist()) == text[64:129]


def test_attention_sees_nothing_of_what_comes(pools):
    unchanged, changed = pools(1).run(differences)[0]
    assert unchanged < 1e-5 < 1e-3 < changed


def differences(ranks):
    """Return how far scores move before and after the place from which the text differs."""
    torch.manual_seed(1)
    model = Language().make_model().eval().float()
    text = torch.arange(64).unsqueeze(0)
    other = text.clone()
    other[:, 40:] += 1
    with torch.no_grad():
        moved = (model(text) - model(other)).abs()
    return float(moved[:, :40].max()), float(moved[:, 40:].max())


def test_language_is_learnt(run):
    ranks = run(2, "--task", "language", "--steps", "20", "--batch-size", "16", "--set", "H=10")
    tested = ranks.end["tested"]
    assert tested["validation_loss"] < 2.5 < 5.5  # ln 256 = 5.5 at the start
    assert tested["validation_bits"] == pytest.approx(
        tested["validation_loss"] / 0.693147, rel=1e-5
    )
    assert ranks.end["test_accuracy"] is None


def test_language_has_no_classes_to_skew_by(data_dir):
    config = parse_config(["--task", "language", "--shard", "dirichlet"], {})
    task = Language()
    task.load(data_dir)
    with pytest.raises(OptionError, match="--shard dirichlet: the samples of language have no cl"):
        make_shard(config, task.train_size, task.labels)


def write_idx(path, shape):
    header = b"\0\0\x08" + bytes([len(shape)]) + b"".join(n.to_bytes(4, "big") for n in shape)
    size = torch.tensor(shape).prod()
    path.write_bytes(header + bytes(n % 10 for n in range(size)))


PACKED = gzip.compress(b"\0\0\x08\1\0\0\0\2ab", mtime=0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (PACKED[:10] + b"\xff" + PACKED[11:], "is damaged"),
        (gzip.compress(b"\0\0\x08\1\0\0\0\2", mtime=0), "is damaged"),
        (gzip.compress(b"\0\0\x08\2\0\0", mtime=0), "is damaged"),
        (gzip.compress(b"GIF89a", mtime=0), "a.gz is not an IDX file of bytes"),
        (PACKED[:-9], "is damaged"),
        (b"", "is not an IDX file of bytes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, data, message):
    (tmp_path / "a.gz").write_bytes(data)
    with pytest.raises(OptionError, match=message):
        read_idx(tmp_path / "a.gz")


def test_pictures_are_the_same_packed_and_unpacked_and_may_be_written_to(tmp_path):
    write_idx(tmp_path / "a", (3, 2, 2))
    mapped = read_idx(tmp_path / "a.gz")
    (tmp_path / "b.gz").write_bytes(gzip.compress((tmp_path / "a").read_bytes()))
    assert torch.equal(mapped, read_idx(tmp_path / "b.gz"))
    mapped += 1
    assert torch.equal(mapped, read_idx(tmp_path / "a.gz") + 1)
    (tmp_path / "a").write_bytes(b"")
    with pytest.raises(OptionError, match="is damaged"):
        read_idx(tmp_path / "a.gz")


@pytest.fixture
def downloaded(tmp_path):
    """MNIST and CIFAR-10 as torchvision stores them, a few pictures each."""
    folder = tmp_path / "MNIST/raw"
    folder.mkdir(parents=True)
    for kind, count in (("train", 64), ("t10k", 20)):
        write_idx(folder / f"{kind}-images-idx3-ubyte", (count, 28, 28))
        write_idx(folder / f"{kind}-labels-idx1-ubyte", (count,))
    return tmp_path


def test_mnist_is_read_where_the_user_has_it(run, downloaded):
    flags = ("--task", "mnist", "--data-dir", str(downloaded), "--steps", "2", "--batch-size", "8")
    ranks = run(2, *flags, "--shard", "dirichlet", "--alpha", "5")
    assert 0 <= ranks.end["test_accuracy"] <= 1


def test_cifar_10_is_a_coloured_picture(monkeypatch):
    """Torchvision checks checksums of the files, so its reader is replaced."""
    from torchvision import datasets

    class Few:
        def __init__(self, folder, train):
            import numpy

            self.data = numpy.zeros((20, 32, 32, 3), numpy.uint8)
            self.data[:, :, :, 2] = 255
            self.targets = [n % 10 for n in range(20)]

    monkeypatch.setattr(datasets, "CIFAR10", Few)
    task = task_class("cifar-10")()
    task.load(None)
    pictures, classes = task.batch(torch.arange(4), torch.device("cpu"))
    assert pictures.shape == (4, 3, 32, 32)
    assert pictures[0, :, 0, 0].tolist() == pytest.approx(
        [-0.4914 / 0.2470, -0.4822 / 0.2435, (1 - 0.4465) / 0.2616], abs=1e-5
    )
    assert classes.tolist() == [0, 1, 2, 3]
    assert task.make_model().fc1.in_features == 64 * 14 * 14


@pytest.mark.parametrize(("name", "of"), [("mnist", "MNIST"), ("cifar-10", "CIFAR10")])
def test_what_is_not_there_is_said_with_how_to_get_it(tmp_path, name, of):
    with pytest.raises(OptionError, match=f"no {of} in .*download=True") as error:
        task_class(name)().load(tmp_path)
    assert "\n" not in str(error.value)


OWN = """
import torch
from torch import nn
from torch.utils.data import TensorDataset


class Line(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x).squeeze(1), y)


def make_task(width: int = 8, noise: float = 0.0):
    x = torch.randn(300, 4)
    y = x.sum(1) + noise * torch.randn(300)
    return Line(width), TensorDataset(x[:256], y[:256]), TensorDataset(x[256:], y[256:])
"""


def test_the_example_of_the_code_trains(run, own):
    lines = inspect.getdoc(user_task).splitlines()
    start = lines.index("    import torch")
    text = [line for line in lines[start:] if not line or line.startswith("    ")]
    flags = ("--task", own("\n".join(text)), "--steps", "20", "--batch-size", "16", "--lr", "0.01")
    ranks = run(2, *flags, "--set", "H=5")
    assert ranks.end["tested"]["validation_loss"] < 0.7 * ranks.of("step")[0]["loss"]


@pytest.fixture
def own(tmp_path):
    """A function that writes a task's file and returns the value for --task."""

    def write(text=OWN, name="make_task"):
        (tmp_path / "mine.py").write_text(textwrap.dedent(text))
        return f"{tmp_path}/mine.py:{name}"

    return write


def test_a_task_of_ones_own_trains(run, own):
    flags = ("--task", own(), "--steps", "30", "--batch-size", "16", "--lr", "0.02", "--set", "H=5")
    ranks = run(2, *flags, "--task-set", "width=12")
    assert ranks.of("start")[0]["config"]["task_options"] == {"width": 12, "noise": 0.0}
    assert len(ranks.parameters[0]) == 12 * 4 + 12 + 12 + 1
    assert torch.equal(ranks.parameters[0], ranks.parameters[1])
    assert ranks.end["tested"]["validation_loss"] < 0.5 * ranks.of("step")[0]["loss"]


FLIPPED = """
import random

import numpy


class Flipped(TensorDataset):
    def __getitem__(self, number):
        x, y = super().__getitem__(number)
        return (x if DRAWN < 0.5 else -x), y


def flipped():
    model, *others = make_task()
    same = Flipped(torch.ones(300, 4), torch.ones(300))
    return model, same, same
"""


DRAWN = ["random.random()", "torch.rand(())", "numpy.random.rand()"]


@pytest.mark.parametrize("drawn", DRAWN)
def test_ranks_that_augment_start_and_draw_each_for_itself(run, own, drawn):
    """All samples are the same: only the random flips can make the losses of ranks differ."""
    task = own(OWN + FLIPPED.replace("DRAWN", drawn), "flipped")
    ranks = run(3, "--task", task, "--steps", "3", "--batch-size", "16")
    losses = [tuple(step["loss"] for step in ranks.of("step", rank)) for rank in range(3)]
    assert len(set(losses)) == 3


@pytest.mark.parametrize("drawn", DRAWN)
def test_a_test_takes_no_draws_from_training(run, own, drawn):
    """Rank 0 alone tests, on samples that are flipped at random."""
    task = own(OWN + FLIPPED.replace("DRAWN", drawn), "flipped")
    flags = ("--task", task, "--steps", "4", "--batch-size", "16")
    tested, plain = (run(2, *flags, "--eval-every", every) for every in ("1", "0"))
    assert len(tested.of("eval")) == 4
    losses = [[step["loss"] for step in ranks.of("step")] for ranks in (tested, plain)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("return Line(width), ", "return "), "mine.py:17: must return model, train_dataset, val_"),
        (
            ("return Line(width), ", "return 3, "),
            "mine.py:17: model must be a torch.nn.Module, not",
        ),
        (("TensorDataset(x[256:], y[256:])", "3"), "mine.py:17: val_dataset has no __len__ and no"),
        (("x[256:], y[256:]", "x[300:], y[300:]"), "mine.py:17: val_dataset is empty"),
        (("x.sum(1)", "x.summ(1)"), r"mine.py:19: AttributeError: .*summ"),
        (("width: int = 8", "width"), "mine.py:17: width has no default: write width=20, say"),
        (("width: int = 8", "width=(8, 8)"), r"mine.py:17: width must be .*not \(8, 8\)"),
        (("def make_task", "def mak_task"), "unknown task in .*: did you mean 'mak_task'"),
    ],
)
def test_mistakes_in_it_are_named(own, change, message):
    assert change[0] in OWN
    with pytest.raises(OptionError, match=message):
        task_class(own(OWN.replace(*change)))().load(None)


def test_a_forward_that_returns_no_loss_is_named(own):
    task = task_class(own(OWN.replace("nn.functional.mse_loss(self.net(x).squeeze(1), y)", "x")))()
    task.load(None)
    batch = task.batch(torch.arange(3), torch.device("cpu"))
    with pytest.raises(OptionError, match=r"mine.py:12: forward\(batch\) must .*Tensor of shape"):
        task.loss(task.make_model(), batch)


def test_data_dir_and_classes_reach_it(own, tmp_path):
    text = OWN.replace("width: int = 8", "data_dir, width: int = 8").replace(
        "    return Line", "    assert data_dir.name == 'there'\n    return Line"
    )
    text += textwrap.dedent("""
    def with_classes():
        model, train, held_out = make_task(__import__("pathlib").Path("there"))
        train.targets = [n % 2 for n in range(256)]
        return model, train, held_out
    """)
    task = task_class(own(text))()
    task.load(tmp_path / "there")
    assert task.labels is None
    task = task_class(own(text, "with_classes"))()
    task.load(None)
    assert task.labels.bincount().tolist() == [128, 128]


class Labelled(TensorDataset):
    """A dataset of four samples with the given `labels`."""

    def __init__(self, labels):
        super().__init__(torch.zeros(4, 2))
        self.labels = labels


def given(train, *, own_held_out=False):
    task = DatasetTask()
    parts = torch.nn.Identity(), train, TensorDataset(torch.zeros(1))
    task.take("here", parts, own_held_out=own_held_out)
    return task


@pytest.mark.parametrize(
    "labels",
    [
        ["cat", "dog", "cat", "dog"],
        numpy.array(["cat", "dog", "cat", "dog"]),
        lambda: [0, 1, 0, 1],
        3,
        [[0], [1], [0], [1]],
        [[0], [1, 2], [0], [1]],
        [{"boxes": 1}] * 4,
        {"a": 1, "b": 2, "c": 3, "d": 4},
        [0.0, 1.0, 0.0, 1.0],
        [0, 1],
        [0, None, 1, 0],
        [2**70, 0, 1, 0],
        None,
    ],
)
def test_what_are_no_classes_is_not_taken_for_them(labels):
    assert given(Labelled(labels)).labels is None


class Flipped(TensorDataset):
    """Four samples that are zeros or ones, by a draw."""

    def __init__(self, draw):
        super().__init__(torch.zeros(4, 2))
        self._draw = draw

    def __getitem__(self, number):
        return super().__getitem__(number)[0] + (self._draw() < 0.5)


def test_augmented_data_are_the_same_data_on_every_rank_whatever_it_drew_before():
    def seen(seed):
        numpy.random.seed(seed)
        wanted = numpy.random.RandomState(seed).rand()
        found = given(Flipped(numpy.random.rand)).fingerprint()
        assert numpy.random.rand() == wanted  # the script's own draws go on
        return found

    assert len({seen(seed) for seed in range(8)}) == 1


def test_a_sample_drawn_by_a_generator_of_its_own_does_not_identify_data():
    found = {
        given(Flipped(numpy.random.default_rng(seed).random)).fingerprint() for seed in range(8)
    }
    assert len(found) == 1


@pytest.mark.parametrize("kind", [list, torch.tensor, numpy.array, lambda n: list(numpy.array(n))])
def test_classes_and_chosen_samples_are_plain_numbers_however_they_are_kept(kind):
    """Numpy 2 prints its numbers differently from numpy 1, and ranks may have either."""
    assert given(Labelled(kind([0, 1, 0, 1]))).labels.tolist() == [0, 1, 0, 1]
    data = TensorDataset(torch.zeros(4, 2))
    choices = {given(Subset(data, part)).choice() for part in ([0, 2], kind([0, 2]))}
    assert choices == {b"[2, 1, [[0, 2], []], []]"}
    assert given(Subset(data, [0, 2]), own_held_out=True).choice() == b"[2, [[0, 2]], []]"
