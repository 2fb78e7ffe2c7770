"""Proofs that an event is the controller's: whoever sees those of earlier events has no further.

Functions that others wrote print to the same output. Each event carries a proof whose hash is the
proof of the event before it, so all can check one and only its sender could make it (Lamport 1981,
"Password authentication with insecure communication").
"""

import hashlib
import secrets

CHAIN_LENGTH = 4096
_ANNOUNCED = 16
"""The next chain is announced by so many events: one of them may be torn."""


def before(proof: str) -> str:
    """The proof of the event before the one that carries this, both hexadecimal."""
    return hashlib.sha256(proof.encode()).hexdigest()[:32]


class Proofs:
    """The proofs of one sender, in order."""

    def __init__(self) -> None:
        self._left = _chain()
        self._next = _chain()

    def take(self) -> dict[str, str]:
        """Fields of the next event: its proof, and near a chain's end that before the next one."""
        if not self._left:
            self._left, self._next = self._next, _chain()
        fields = {"proof": self._left.pop()}
        if len(self._left) < _ANNOUNCED:
            fields["next_proof"] = before(self._next[-1])
        return fields


def _chain() -> list[str]:
    """Proofs, the last of which comes first."""
    chain = [secrets.token_hex(16)]
    while len(chain) < CHAIN_LENGTH:
        chain.append(before(chain[-1]))
    return chain
