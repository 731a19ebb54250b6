"""What three contracts that do not hold say together, on a guest that is now and then too slow."""

from guest_checks import Json, never_held


def contract(*undecided: list[str], broken: tuple[str, ...] = (), overloaded: bool = True) -> Json:
    links = [
        {"link": {"src": "node1", "dst": f"node{n}"}, "undecided": names, "broken": list(broken)}
        for n, names in enumerate(undecided, start=2)
    ]
    return {"links": links, "overloaded": overloaded, "verdict": "1 link"}


def test_each_check_that_held_once_holds():
    assert never_held([contract(["rate"], []), contract(["rtt"], ["rate"])]) == []


def test_a_check_that_never_held_is_named():
    tries = [contract(["rate"], ["rtt"]), contract(["rate", "rtt"], [])]
    assert never_held(tries) == ["node1 -> node2: rate undecided each time"]


def test_one_broken_contract_counts():
    assert never_held([contract(["rate"]), contract([], broken=("rtt",)), contract([])])


def test_undecided_for_no_reason_counts():
    assert never_held([contract(["rate"], overloaded=False), contract(["rtt"])])


def test_a_contract_without_links_counts():
    assert never_held([{}, {}, {}])
