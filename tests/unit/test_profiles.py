"""Profiles: what is shipped is as the documents say, what is wrong is refused by file and key."""

import pytest

from cluster.errors import UsageError
from cluster.profiles import load_profile, parse_profile, profile_names

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


def test_a_misspelt_profile_offers_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'mobile'"):
        load_profile("mobil")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"rate_mbyte_s": 1}, "delay_ms is missing"),
        ({"rate_mbyte_s": 1, "delay_ms": 1, "los_pct": 1}, "did you mean 'loss_pct'"),
        ({"rate_mbyte_s": [2, 1], "delay_ms": 1}, "rate_mbyte_s"),
        ({"rate_mbyte_s": 0, "delay_ms": 1}, "rate_mbyte_s"),
        ({"rate_mbyte_s": 1, "delay_ms": "fast"}, "delay_ms"),
        ({"rate_mbyte_s": 1, "delay_ms": True}, "delay_ms"),
        ({"rate_mbyte_s": 1, "delay_ms": 1, "loss_pct": 101}, "loss_pct"),
        ({"rate_mbyte_s": 1, "delay_ms": 1, "tcp": "cubik"}, "did you mean 'cubic'"),
        ({"rate_mbyte_s": 1, "delay_ms": 1, "distribution": "normel"}, "did you mean 'normal'"),
        ({"rate_mbyte_s": 1, "delay_ms": 1, "loss_burst": 0}, "loss_burst"),
    ],
)
def test_what_is_wrong_is_named_with_the_file_and_the_key(document, words):
    with pytest.raises(UsageError) as caught:
        parse_profile("x", document, "x.yml")
    assert "x.yml" in str(caught.value)
    assert words in str(caught.value)


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no profile file"):
        load_profile(str(tmp_path / "none.yml"))
    (tmp_path / "list.yml").write_text("- 1\n")
    with pytest.raises(UsageError, match="mapping"):
        load_profile(str(tmp_path / "list.yml"))
    (tmp_path / "torn.yml").write_text("a: [1\n")
    with pytest.raises(UsageError, match="not YAML"):
        load_profile(str(tmp_path / "torn.yml"))
