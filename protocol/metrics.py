"""What each rank of `node.train` leaves in its run's folder: lines of metrics, and a line for each collective.

`metrics.jsonl` has one JSON object a line, flushed: a rank that is killed leaves what it had. `"event"` says which of
these types a line has (EVENTS), `rank` and `time` are in all of them:

- `start`, when the ranks have met; `step` after each step; `end`, the last one.
- `rollout`, `experience` and `weights`: of reinforcement learning.
- `eval`: an evaluation, on rank 0. With `--eval after` these lines come after the last step's.

`collectives.jsonl` has a line for each collective (protocol/collectives.py). Where several ranks share a machine
(LOCAL_WORLD_SIZE above 1) the files are `metrics-rank<r>.jsonl` and `collectives-rank<r>.jsonl`. A run that goes on in
the folder of the one before (`--resume`) adds its lines.

Readers ignore keys that they do not know: other versions write them, and tasks of the user's own. A line that is cut
short, or of which a key has another type, counts as not there.
"""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from protocol.collectives import CollectiveSum
from protocol.reader import NOT_NULL, Check, Count, document, read, within
from protocol.values import (
    Figure,
    MaybeCount,
    MaybeNumber,
    Name,
    Number,
    RankKey,
)

MOST_LINE_BYTES = 1 << 22
MOST_WEIGHTS_BYTES = 1 << 30
"""Of a message between learner and actors: node/transport/messages.py."""


def _is_distribution(value: Mapping[str, float]) -> bool:
    return not value or value.keys() >= {"mean", "median", "p95", "max"}


def _is_actor(value: Mapping[str, float]) -> bool:
    counts = [value.get("lives"), value.get("connections")]
    return all(isinstance(count, int) and count >= 0 for count in counts)


Distribution = Annotated[
    dict[Name, Number], Check("mean, median, p95 and max, or nothing", _is_distribution)
]
"""Mean, median, 95th percentile and maximum over steps; empty where there were none."""


class Start(NamedTuple):
    """The first line of a rank, when all ranks have met."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time."""
    config: dict[str, object] | None = None
    """The resolved configuration (protocol/training.py)."""
    seconds: dict[Name, Number] = {}  # noqa: RUF012 - nobody changes it
    """Seconds by bucket so far, and their `total`."""
    link_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """What each link that starts at this node has carried so far, by peer, headers included; empty where nothing is
    shaped. Read before the first collective, which none can end before all ranks have begun it."""


class Step(NamedTuple):
    """A step of training; of a learner, an update."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time, when it was over."""
    step: Count
    """Its number, from 1."""
    sent_bytes: Count
    """Payload that this rank's collectives have sent for the strategy since the step before."""
    loss: Figure = None
    """This rank's own, of its own batch."""
    compute_s: MaybeNumber = None
    """Seconds of computing: passes over the model, steps of its optimiser."""
    comm_s: MaybeNumber = None
    """Seconds in which it did nothing but wait for a collective."""
    strategy_s: MaybeNumber = None
    """Seconds of what the strategy did besides: packing, compressing, mixing, an outer optimiser."""


class Rollout(NamedTuple):
    """What this rank's environments did: of `ppo` before the first step that learns from it, of an actor every 2 s."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time."""
    step: Count
    """The step that learns from it first; of an actor the version of its weights."""
    env_steps: Count
    """Steps of its environments since the beginning."""
    episodes: Count
    """That have ended."""
    rollout: MaybeNumber = None
    """Its number, with `ppo`."""
    episode_return: Figure = None
    """Mean return of those episodes; missing where none ended."""
    episode_length: Figure = None
    """Mean steps of them, likewise."""


class Experience(NamedTuple):
    """What a learner has of its actors since it began, every 2 s."""

    rank: Count
    """Who writes: 0."""
    time: Number
    """Unix time."""
    step: Count
    """The update."""
    env_steps: MaybeCount = None
    """Steps of environments that came."""
    pieces: MaybeCount = None
    """Pieces of experience, each an episode or an unroll."""
    rejected: MaybeCount = None
    """Of these, those that were too old."""
    mean_steps: MaybeNumber = None
    """Steps of a piece."""
    mean_steps_kept: MaybeNumber = None
    """Steps of a piece that was not rejected."""
    replay_ratio: MaybeNumber = None
    """Steps learnt ÷ steps made."""
    duplicates: MaybeCount = None
    """Pieces that came twice."""
    malformed: MaybeCount = None
    """Messages that could not be read."""
    received_bytes: MaybeCount = None
    """Payload."""
    updates_s: MaybeNumber = None
    """Updates a second."""
    staleness_updates: Distribution = {}  # noqa: RUF012
    """Updates from the weights that acted to the arrival of the piece. Here and below, over steps."""
    staleness_s: Distribution = {}  # noqa: RUF012
    """Seconds from the weights that acted to the arrival of the piece."""
    weights_age_s: Distribution = {}  # noqa: RUF012
    """Seconds from a version's publication until it acts. Steps by the first version have no age."""


class Weights(NamedTuple):
    """That a version of the weights has come to an actor (`pull_every=0`: versions come by themselves)."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time."""
    step: Count
    """The version."""
    version: Count
    """The version."""
    source: Count
    """The rank that it came from."""
    bytes: Annotated[int, within(1, MOST_WEIGHTS_BYTES)]
    """Payload; of changes fewer than of all."""
    waited: bool
    """Whether this rank waited for it when it was published."""
    published_at_s: Number
    """Unix time, when the learner had it."""
    received_at_s: Number
    """Unix time, when all of it was there."""


class Evaluation(NamedTuple):
    """An evaluation on held-out data. Which figures there are depends on the task; it may add some of its own."""

    rank: Count
    """Who writes: 0."""
    time: Number
    """Unix time."""
    step: Count
    """The model is the one after this step."""
    eval_s: MaybeNumber = None
    """How long it took."""
    test_loss: Figure = None
    """Of pictures: in nats."""
    test_accuracy: Figure = None
    """Of pictures: 0 to 1."""
    validation_loss: Figure = None
    """`language`: in nats a byte; also of tasks of the user's own."""
    validation_bits: Figure = None
    """`language`: the same in bits a byte."""
    test_return: Figure = None
    """`ppo` and `impala`: mean return of episodes in environments that training never sees."""
    test_length: Figure = None
    """Their mean steps."""
    test_success: Figure = None
    """`mapf`: share of instances that were solved."""
    test_steps: Figure = None
    """`mapf`: mean steps of solved instances."""
    cbs_success: Figure = None
    """`mapf`: share that conflict-based search solved."""
    cbs_steps: Figure = None
    """`mapf`: mean steps of its solutions."""
    steps_over_cbs: Figure = None
    """`mapf`: steps ÷ those of conflict-based search, on instances that both solved."""


class LearnerFigures(NamedTuple):
    """What a learner has had of its actors, at the end: as Experience, and more."""

    env_steps: Count
    """As of Experience, and so on."""
    pieces: Count
    """Pieces of experience."""
    rejected: Count
    """Of these, those that were too old."""
    mean_steps: Number
    """Steps of a piece."""
    mean_steps_kept: Number
    """Steps of a piece that was not rejected."""
    replay_ratio: Number
    """Steps learnt ÷ steps made."""
    duplicates: Count
    """Pieces that came twice."""
    malformed: Count
    """Messages that could not be read."""
    received_bytes: Count
    """Payload."""
    updates_s: Number
    """Updates a second."""
    staleness_updates: Distribution
    """Updates from the weights that acted to the arrival."""
    staleness_s: Distribution
    """Seconds from the weights that acted to the arrival."""
    weights_age_s: Distribution
    """Seconds from a version's publication until it acts."""
    pull_every: Count
    """Steps after which actors ask for weights; 0: versions come by themselves."""
    publish_every: Count
    """Updates between versions."""
    broadcast: Name
    """The way that versions take from rank to rank: star, chain or tree."""
    changed: Figure
    """`weights=delta`: the mean share of numbers that had changed; else null."""
    actors: dict[RankKey, Annotated[dict[Name, Number], Check("figures of an actor", _is_actor)]]
    """Figures of each actor, by rank: `connections`, `lives` (how often it was started), `duplicates`, `pieces`,
    `steps`, `received_bytes`, `rejected`, `rejected_steps`, `weights_age_s` (mean), and what it said with its goodbye,
    if it did: `env_steps`, `step_interval_s` (between steps of an environment), `not_handed_over` (pieces that the
    learner had not acknowledged), `pulled_bytes` (of weights, mean), `pull_s_…` (from question to answer) and
    `publish_lag_s_…` (from a version's publication until it acts)."""


class End(NamedTuple):
    """The last line of a rank that came to its end."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time."""
    steps: MaybeCount = None
    """How many there were; of an actor the version of its weights."""
    seconds: Annotated[dict[Name, Number] | None, NOT_NULL] = None
    """Seconds by bucket, of which exactly one runs at any time, and their sum `total`: `startup` (until the first
    step), `data`, `rollout`, `compute` (passes over the model, steps of its optimiser), `strategy` (packing,
    compressing, mixing, an outer optimiser), `comm` (nothing but waiting for a collective, and so also for a slower
    rank; at the end until the others' kernels have acknowledged all that was sent), `eval`, `checkpoint`, `other`."""
    sent_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """Payload that this rank's collectives have sent, by purpose, by the algorithm's own count, without headers."""
    collectives: list[CollectiveSum] = []  # noqa: RUF012
    """All of them: one for each kind, purpose and size."""
    link_bytes: dict[Name, Count] = {}  # noqa: RUF012
    """As of Start, read when all that this rank has sent has arrived."""
    final_loss: Figure = None
    """Of the last step."""
    test_accuracy: Figure = None
    """That of `tested`; null where there is none."""
    tested: dict[Name, Figure] = {}  # noqa: RUF012
    """The figures of the last evaluation; empty on all ranks but 0."""
    experience: Annotated[LearnerFigures | None, NOT_NULL] = None
    """Of a learner."""
    acted: Annotated[dict[Name, Number] | None, NOT_NULL] = None
    """Of an actor: what it said with its goodbye."""


class Unknown(NamedTuple):
    """A line of another event: of a later version, or of the user's own."""

    rank: Count
    """Who writes."""
    time: Number
    """Unix time."""
    event: Name
    """What it is."""


Line = Start | Step | Rollout | Experience | Weights | Evaluation | End | Unknown
EVENTS: dict[str, type[Line]] = {
    "start": Start,
    "step": Step,
    "rollout": Rollout,
    "experience": Experience,
    "weights": Weights,
    "eval": Evaluation,
    "end": End,
}
NAMES = {kind: event for event, kind in EVENTS.items()}
FIGURES = tuple(
    name for name in Evaluation._fields if name not in ("rank", "time", "step", "eval_s")
)
"""The figures of evaluations, of all tasks."""
OF_SOLVER = ("cbs_success", "cbs_steps", "steps_over_cbs")
"""Of these, those of the solver that `mapf` is compared with."""
SCORES = {
    "test_accuracy": "accuracy",
    "test_return": "return",
    "test_success": "success",
    "validation_bits": "bits",
    "test_loss": "test loss",
    "episode_return": "return",
}
"""What is shown of a rank while it runs, by the word for it: of a line with several the first one here."""


def read_line(value: object) -> Line:
    """A line of metrics, from a parsed JSON value.

    Raises:
        FormatError: it is none; the message names the key.
    """
    event = value.get("event") if isinstance(value, dict) else None
    kind = EVENTS.get(event, Unknown) if isinstance(event, str) else Unknown
    return read(kind, value, ignore_unknown=True)


def line_document(line: Line, own: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The JSON value of a line of metrics. What it lacks is left out, but for the accuracy of an end.

    Args:
        line: to be written.
        own: figures of a task of the user's own that the line's type does not have.
    """
    said = {
        name: value
        for name, value in document(line).items()
        if value is not None or (name == "test_accuracy" and isinstance(line, End))
    }
    event = {} if isinstance(line, Unknown) else {"event": NAMES[type(line)]}
    return {**event, **said, **{name: x for name, x in (own or {}).items() if name not in said}}
