"""Which nodes a sandbox has, and which simulated cards are in them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aibrix_operator.sim import card

MAX_NODES = 200
MAX_CARDS_PER_NODE = 200


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node; all its cards are of one kind, as in a server."""

    index: int
    """From 1; also the third byte of its Pods' addresses."""
    name: str
    card_kind: str
    """A preset or a size, as :func:`aibrix_operator.sim.card.parse_card` reads it."""
    cards: int

    def card_uuid(self, slot: int) -> str:
        """The UUID of the card in ``slot`` (from 0): a Pod that takes a freed slot sees the same card again."""
        return f"GPU-{self.name}-{slot}"


def plan_nodes(cards: Sequence[str], nodes: int | None) -> tuple[NodeShape, ...]:
    """Spread ``cards`` (one kind an entry) over ``nodes`` nodes, by default one node a kind.

    Nodes beyond the number of kinds go, one by one, to the kind with the most cards a node, ties to the kind that was
    named first; its cards are spread evenly, the first nodes taking one more. There may be nodes without a card.
    ValueError when a kind is none, would be left without a node, or a limit is passed.
    """
    counts = Counter(map(_one_spelling, cards))
    if not counts:
        raise ValueError("a sandbox needs at least one card")
    wanted = len(counts) if nodes is None else nodes
    if not len(counts) <= wanted <= MAX_NODES:
        raise ValueError(f"{len(counts)} kinds of cards need {len(counts)} to {MAX_NODES} nodes, not {wanted}")
    spread = dict.fromkeys(counts, 1)
    while sum(spread.values()) < wanted:
        spread[max(counts, key=lambda kind: counts[kind] / spread[kind])] += 1
    shares: list[tuple[str, int]] = []
    for kind, count in counts.items():
        each, more = divmod(count, spread[kind])
        shares += [(kind, each + (1 if position < more else 0)) for position in range(spread[kind])]
    if max(share for _, share in shares) > MAX_CARDS_PER_NODE:
        raise ValueError(f"a node takes at most {MAX_CARDS_PER_NODE} cards; ask for more nodes")
    return tuple(NodeShape(index, f"node-{index}", kind, share) for index, (kind, share) in enumerate(shares, start=1))


def _one_spelling(kind: str) -> str:
    """A preset in small letters; a size as it is, because ``Gi`` has one spelling only."""
    card.parse_card(kind)  # raises for what is neither, before anything is started
    return kind.lower() if kind.lower() in card.PRESETS else kind


def describe_cards(nodes: Sequence[NodeShape]) -> str:
    """Such as ``2 × h20, 1 × l40s``."""
    counts: Counter[str] = Counter()
    for node in nodes:
        counts[node.card_kind] += node.cards
    return ", ".join(f"{count} × {kind}" for kind, count in counts.items())
