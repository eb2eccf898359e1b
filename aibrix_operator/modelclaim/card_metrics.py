"""Gauges of cards, and of claims by what they wait for. Accounts are opened when somebody scrapes.

Cards are told of by the leading replica alone, which reads their runtimes; claims by every replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from aibrix_operator.api.conditions import ConditionStatus, find_condition
from aibrix_operator.api.modelclaim import ClaimPhase, ConditionType, Reason
from aibrix_operator.modelclaim import known
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.snapshot import Claim
from aibrix_operator.modelclaim.world import World

PREFIX = "aibrix_modelclaim"
_CARD = ("namespace", "pod")
_REASONS = frozenset(Reason)
OTHER = "Other"
"""Stands for a reason that is none of ours: statuses are written by whoever may, and become no label."""


class CardGauges(Collector):
    """A collector; looks at the world when somebody scrapes."""

    def __init__(self, world: World) -> None:
        self._world = world

    def describe(self) -> Iterable[Metric]:
        """Nothing to collect before the caches are filled, and so nothing at registration."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        claims, _ = known.claims(self._world)
        yield from _of_claims(claims)
        accounts = [
            account
            for fleet in known.fleets(claims, known.pods(self._world, claims))
            for account in open_accounts(fleet).values()
            if account.pod.uid in self._world.readers and account.has_cards
        ]
        yield from _of_cards(accounts)


def _of_claims(claims: list[Claim]) -> Iterator[Metric]:
    phases = GaugeMetricFamily(f"{PREFIX}_claims", "Claims in this phase.", labels=("namespace", "phase"))
    counts = Counter((claim.namespace, claim.status.phase or ClaimPhase.PENDING) for claim in claims)
    for namespace in sorted({claim.namespace for claim in claims}):
        for phase in ClaimPhase:
            phases.add_metric((namespace, phase), counts[namespace, phase])
    yield phases
    text = "Claims without a card, by the reason of their Scheduled condition."
    waiting = GaugeMetricFamily(f"{PREFIX}_waiting_claims", text, labels=("namespace", "reason"))
    reasons = Counter((c.namespace, _reason(c)) for c in claims if not c.is_deleting and not c.status.instances)
    for (namespace, reason), count in sorted(reasons.items()):
        waiting.add_metric((namespace, reason), count)
    yield waiting
    text = "KV limits that are recorded for the claim, summed over its instances."
    limits = GaugeMetricFamily(f"{PREFIX}_kv_limit_bytes", text, labels=("namespace", "model"))
    sums: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        sums[claim.namespace, claim.model] += sum(i.kv_limit_bytes for i in claim.status.instances)
    for labels, size_bytes in sums.items():
        limits.add_metric(labels, size_bytes)
    yield limits


def _reason(claim: Claim) -> str:
    condition = find_condition(claim.status.conditions, ConditionType.SCHEDULED)
    if condition is None or condition.status is ConditionStatus.TRUE:
        return Reason.NOT_PLACED
    return condition.reason if condition.reason in _REASONS else OTHER


def _of_cards(accounts: list[Account]) -> Iterator[Metric]:
    usable, promised, held, unreadable = (
        GaugeMetricFamily(f"{PREFIX}_card_{name}", text, labels=_CARD)
        for name, text in (
            ("usable_bytes", "What engines may use of the smallest GPU of the Pod."),
            ("promised_bytes", "Footprints and KV that everyone on the card is entitled to."),
            (
                "held_bytes",
                "Footprints and KV that everyone on the card has taken, or is entitled to where that is more.",
            ),
            ("unreadable", "1 while nothing can be said of the card, so that it is left alone."),
        )
    )
    for account in accounts:
        labels = (account.pod.namespace, account.pod.name)
        unreadable.add_metric(labels, float(bool(account.hole)))
        if account.card is not None:
            usable.add_metric(labels, account.card.usable_bytes)
            promised.add_metric(labels, account.card.promised_bytes)
            held.add_metric(labels, account.card.held_bytes)
    yield from (usable, promised, held, unreadable)
