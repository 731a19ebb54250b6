"""Shipped profiles are as documented, and invalid ones are refused with their file and key."""

import pytest

from cluster.base.errors import UsageError
from cluster.base.spec import ClusterSpec
from cluster.links.link_spec import LinkSpec, has_slow_start_after_idle, link_plans, make_link_spec
from cluster.links.profiles import load_profile, parse_profile, profile_names
from cluster.shaping.link_state import planned_link_state

# The ExoGym network guide's table.
SHIPPED = {
    "local": ((1000, 10000), (0.1, 1)),
    "datacenter": ((100, 1000), (0.5, 5)),
    "wan": ((10, 100), (10, 50)),
    "mobile": ((1, 10), (50, 200)),
    "poor": ((0.1, 1), (200, 1000)),
}


def test_the_shipped_profiles_are_those_of_the_guide():
    assert set(SHIPPED) < set(profile_names())
    for name, (rate, delay) in SHIPPED.items():
        profile = load_profile(name)
        assert (profile.rate_mbyte_s, profile.delay_ms) == (rate, delay)
        assert profile.loss_pct == profile.jitter_pct == (0, 0)


def test_a_profile_of_ones_own_is_a_file(tmp_path):
    path = tmp_path / "dsl.yml"
    path.write_text("rate_mbyte_s: 2\ndelay_ms: [8, 12]\njitter_pct: 10\nloss_pct: 0.5\ntcp: bbr\n")
    profile = load_profile(str(path))
    assert (profile.name, profile.rate_mbyte_s, profile.tcp) == ("dsl", (2, 2), "bbr")
    assert (profile.jitter_pct, profile.loss_pct) == ((10, 10), (0.5, 0.5))


def test_slow_start_after_idle_is_the_kernels_own_unless_said(tmp_path):
    path = tmp_path / "warm.yml"
    path.write_text("rate_mbyte_s: 2\ndelay_ms: 8\nslow_start_after_idle: false\n")
    wanted = make_link_spec(str(path), "full", 1, "auto")
    assert LinkSpec.from_origin(wanted.origin()) == wanted
    nodes = ClusterSpec(size=2).nodes
    plans = link_plans(nodes, wanted)
    assert [plan.slow_start_after_idle for plan in plans.values()] == [False, False]
    assert not has_slow_start_after_idle(plans)
    assert not planned_link_state(plans).document()["slow_start_after_idle"]
    assert has_slow_start_after_idle(link_plans(nodes, make_link_spec("wan", "full", 1, "auto")))
    assert has_slow_start_after_idle({})


def test_a_misspelt_profile_offers_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'mobile'"):
        load_profile("mobil")


BAD = [
    ({"rate_mbyte_s": 1}, "delay_ms is missing"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "los_pct": 1}, "did you mean 'loss_pct'"),
    ({"rate_mbyte_s": [2, 1], "delay_ms": 1}, "rate_mbyte_s"),
    ({"rate_mbyte_s": 0, "delay_ms": 1}, "rate_mbyte_s"),
    ({"rate_mbyte_s": 1, "delay_ms": "fast"}, "delay_ms"),
    ({"rate_mbyte_s": 1, "delay_ms": True}, "delay_ms"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "loss_pct": 101}, "loss_pct"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "tcp": "cubik"}, "did you mean 'cubic'"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "slow_start_after_idle": 0}, "true or false"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "slow_start_after_idle": "off"}, "slow_start"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "distribution": "normel"}, "did you mean 'normal'"),
    ({"rate_mbyte_s": 1, "delay_ms": 1, "loss_burst": 0}, "loss_burst"),
]


@pytest.mark.parametrize(("document", "words"), BAD)
def test_what_is_wrong_is_named_with_the_file_and_the_key(document, words):
    with pytest.raises(UsageError) as caught:
        parse_profile("x", document, "x.yml")
    assert "x.yml" in str(caught.value)
    assert words in str(caught.value)


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no profile file"):
        load_profile(str(tmp_path / "none.yml"))
    for text in ("- 1\n", ""):
        (tmp_path / "list.yml").write_text(text)
        with pytest.raises(UsageError, match="mapping") as refused:
            load_profile(str(tmp_path / "list.yml"))
        assert refused.value.hint == "rate_mbyte_s: [2, 8]"
    (tmp_path / "torn.yml").write_text("a: [1\n")
    with pytest.raises(UsageError, match="not YAML"):
        load_profile(str(tmp_path / "torn.yml"))
