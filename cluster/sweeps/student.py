"""Student's t distribution, for whole degrees of freedom. Pure."""

import math

HALVINGS = 60  # of a right angle


def student_t(tails: float, freedom: int) -> float:
    """Return the t beyond which, on both sides together, lies the share `tails` of Student's distribution.

    Args:
        tails: above 0 and below 1; 0.05 for an interval of 95 %.
        freedom: degrees of freedom, 1 or more.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _tails(middle, freedom) > tails:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _tails(angle: float, freedom: int) -> float:
    """Return the share beyond t on both sides, where `angle` is atan(t / sqrt(freedom)).

    Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4: a finite sum of cosines.
    """
    is_odd = freedom % 2
    term = math.cos(angle) if is_odd else 1.0
    total = term if freedom > 1 else 0.0
    for power in range(2 + is_odd, freedom - 1, 2):
        term *= math.cos(angle) ** 2 * (power - 1) / power
        total += term
    within = math.sin(angle) * total
    return 1 - ((angle + within) * 2 / math.pi if is_odd else within)
