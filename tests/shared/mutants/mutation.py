"""A mutation: one wrong line of the product, and the test that must fail with it."""

from typing import NamedTuple

IN_THE_IMAGE = "tests/node/"
"""Where the tests lie that run inside the node image; all others run on the host."""


class Mutation(NamedTuple):
    """A change of one place in one file."""

    name: str
    file: str
    """Relative to the root of the checkout."""
    old: str
    """The text to replace, which occurs exactly once."""
    new: str
    test: str
    """The pytest node id of the test that fails with it."""

    @property
    def is_in_the_image(self) -> bool:
        """Whether its test runs inside the node image."""
        return self.test.startswith(IN_THE_IMAGE)

    @property
    def test_file(self) -> str:
        """The file of its test."""
        return self.test.partition("::")[0]

    def apply(self, text: str) -> str | None:
        """Return the mutated text; None if the text to change does not occur exactly once."""
        return text.replace(self.old, self.new) if text.count(self.old) == 1 else None
