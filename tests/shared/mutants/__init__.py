"""The mutations that tests/mutations.py makes: one file for each part of the product.

To add one: a short line of the product that will stay (a constant, for example), its replacement, and the test that
fails.
"""

from mutants.accounting import ACCOUNTING
from mutants.hosts import HOSTS
from mutants.launching import LAUNCHING
from mutants.learning import LEARNING
from mutants.lifecycle import LIFECYCLE
from mutants.links import LINKS
from mutants.mutation import Mutation
from mutants.proof import PROOF
from mutants.security import SECURITY
from mutants.wire import WIRE

MUTATIONS: tuple[Mutation, ...] = (
    *WIRE,
    *LINKS,
    *PROOF,
    *ACCOUNTING,
    *LEARNING,
    *LAUNCHING,
    *LIFECYCLE,
    *HOSTS,
    *SECURITY,
)
