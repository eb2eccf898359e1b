"""Which addresses and cards of one node are taken, and by whom. Pure bookkeeping; the agent's memory of it is rebuilt
from Pod folders and Pod statuses after a restart."""

from __future__ import annotations

from typing import NamedTuple

_ADDRESSES = range(1, 255)


class Place(NamedTuple):
    """What one Pod has of its node."""

    address: str
    cards: tuple[int, ...]


class NodeSlots:
    """Addresses ``<prefix>.1`` to ``.254`` and card slots from 0, each with one holder: a Pod's UID."""

    def __init__(self, prefix: str, cards: int) -> None:
        """``prefix`` is the first three bytes of the node's Pod range, such as ``127.17.1``."""
        self._prefix = prefix
        self._cards = range(cards)
        self._places: dict[str, Place] = {}

    def held_by(self, uid: str) -> Place | None:
        """What the Pod has; None when it has nothing."""
        return self._places.get(uid)

    def restore(self, uid: str, place: Place) -> None:
        """Note what a Pod got from an earlier agent."""
        self._places[uid] = place

    def take(self, uid: str, cards: int) -> Place | None:
        """The lowest free address and cards, for ``uid``; None, with nothing taken, when there are too few.

        The scheduler counts a card as free when its Pod's object is gone, which a forced deletion brings about before
        the Pod's processes have ended: the successor has to wait.
        """
        taken = {place.address for place in self._places.values()}
        address = next((a for last in _ADDRESSES if (a := f"{self._prefix}.{last}") not in taken), None)
        in_use = {slot for place in self._places.values() for slot in place.cards}
        free = [slot for slot in self._cards if slot not in in_use]
        if address is None or len(free) < cards:
            return None
        self._places[uid] = Place(address, tuple(free[:cards]))
        return self._places[uid]

    def give_back(self, uid: str) -> None:
        self._places.pop(uid, None)
