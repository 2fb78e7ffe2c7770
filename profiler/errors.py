"""What keeps a profile from being measured, in words for whoever asked for it."""

from collections.abc import Sequence


class ProfileError(Exception):
    """The request or the machine is at fault; one line per thing to mend."""

    def __init__(self, headline: str, lines: Sequence[str] = ()) -> None:
        super().__init__(headline)
        self.headline = headline
        self.lines = list(lines)


class NodeLostError(ProfileError):
    """A node went away while it was measured: nobody's request is at fault."""
