"""Weights of a rank that trains and generates in turn: in one place at a time.

To generate, each tensor goes to where vLLM reads it, which takes memory for it then, and the
training weights that are whole there are freed. To train, these are filled again from vLLM's, whose
memory is freed as it empties. So a rank holds its generation shard or its training shard, and while
they change places what is in transit.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from automap.executor.engines.training_engine import Piece
from automap.executor.reshard.ledger import Ledger
from automap.executor.reshard.parts import Held, part_of
from automap.executor.rollout.plain_weights import PlainWeights


@dataclass(frozen=True, slots=True)
class _Lent:
    """A storage of training weights that can be filled again from vLLM's."""

    storage: torch.UntypedStorage
    nbytes: int
    sources: tuple[tuple[Tensor, Tensor], ...]
    """Views of it, and of vLLM's weights with the same elements."""
    names: frozenset[str]
    """Hugging Face tensors of which it holds something."""
    has_gaps: bool
    """Whether bytes between parameters are in none: zeros."""

    @property
    def lenders(self) -> dict[int, torch.UntypedStorage]:
        """The storages of vLLM that it is filled from."""
        storages = [source.untyped_storage() for _, source in self.sources]
        return {each._cdata: each for each in storages}


class WeightTurns:
    """Training weights that make room for vLLM's while it generates."""

    def __init__(
        self,
        plain: PlainWeights,
        pieces: Callable[[], Iterable[Piece]],
        weights: Callable[[], Iterable[Tensor]],
        ledger: Ledger,
    ) -> None:
        """Nothing moves yet.

        Args:
            plain: vLLM's weights.
            pieces: this rank's training weights as parts of Hugging Face tensors, asked for anew.
            weights: the parameters that the pieces lie in.
            ledger: to count in.
        """
        self._plain, self._pieces, self._weights, self._ledger = plain, pieces, weights, ledger
        self._lent: list[_Lent] | None = None
        """Found when the first weights come: only then is it known where they go."""

    @torch.no_grad()
    def lend(self, weights: Iterable[tuple[str, Held]]) -> frozenset[str]:
        """Fill vLLM's weights, and free training weights that are there now.

        Args:
            weights: what this rank reads of every tensor, as a `Transition` brings it.

        Returns:
            vLLM's names of the parameters that something went to.
        """
        lent = self._lent = self._lent or self._find()
        by_name: dict[str, list[int]] = defaultdict(list)
        for number, each in enumerate(lent):
            for name in each.names:
                by_name[name].append(number)
        left = {number: set(each.names) for number, each in enumerate(lent)}
        filled: set[str] = set()
        for name, held in weights:
            filled |= self._plain.fill(name, held)
            self._ledger.sample()
            for number in by_name.get(name, []):
                left[number].discard(name)
                if not left[number]:
                    lent[number].storage.resize_(0)
        return frozenset(filled)

    @torch.no_grad()
    def give_back(self) -> None:
        """Fill the training weights again, bit by bit what they were, and free vLLM's."""
        lent = [each for each in self._lent or [] if not each.storage.nbytes()]
        readers = Counter(key for each in lent for key in each.lenders)
        for tensor in self._plain.tensors():
            storage = tensor.untyped_storage()
            if storage._cdata not in readers:
                storage.resize_(0)
        for each in lent:
            each.storage.resize_(each.nbytes)
            if each.has_gaps:
                each.storage.fill_(0)  # type: ignore[attr-defined]  # torch has it, its types not
            self._ledger.sample()
            for view, source in each.sources:
                view.copy_(source.reshape(view.shape))
            for key, storage in each.lenders.items():
                readers[key] -= 1
                if not readers[key]:
                    storage.resize_(0)

    def _find(self) -> list[_Lent]:
        """The storages of which vLLM's weights have every element, in the same precision."""
        pieces: dict[int, list[Piece]] = defaultdict(list)
        for piece in self._pieces():
            pieces[piece.view.untyped_storage()._cdata].append(piece)
        parameters: dict[int, list[Tensor]] = defaultdict(list)
        for tensor in self._weights():
            parameters[tensor.untyped_storage()._cdata].append(tensor)
        found = []
        with self._plain.room():
            for key, tensors in parameters.items():
                sources = self._sources(tensors, pieces.get(key, []))
                if sources is not None:
                    storage = tensors[0].untyped_storage()
                    names = frozenset(piece.name for piece in pieces[key])
                    has_gaps = storage.nbytes() != sum(each.nbytes for each in tensors)
                    found.append(_Lent(storage, storage.nbytes(), sources, names, has_gaps))
        return found

    def _sources(
        self, tensors: list[Tensor], pieces: list[Piece]
    ) -> tuple[tuple[Tensor, Tensor], ...] | None:
        """Each piece's view beside vLLM's of the same elements; None if some are nowhere there."""
        if sum(map(torch.numel, tensors)) != sum(piece.view.numel() for piece in pieces):
            return None
        sources = []
        for piece in pieces:
            part = part_of(piece)
            wholly = (each for each in self._plain.places(part) if part.common(each.part) == part)
            place = next(wholly, None)
            if place is None or place.view.dtype != piece.view.dtype:
                return None
            sources.append((piece.view, place.view[part.within(place.part)]))
        return tuple(sources)
