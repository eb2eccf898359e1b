"""Hold a snapshot against the ledger's laws: what was promised, not what engines did of themselves."""

from __future__ import annotations

from aibrix_operator.ledger import audit
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.snapshot import Fleet


def broken_laws(fleet: Fleet) -> dict[str, str]:
    """Pod name → a sentence, for cards whose records and footprints sum to more than they have; empty when all is well.

    A card on which a write is under way is passed over: which of the two records counts is not known yet. So is one for
    which a write failed and is tried again: the API server may let nobody put right what another hand wrote. And one
    with a claim that was declared anew (only ``perGPU`` can change, and a generation counts it): its user may have
    raised the sum past the card, and then nobody is evicted for it. And one with a sleeper whose seat was given away
    and is charged again, since its pool lends no more, it can no longer be measured, or it came back awake after a
    crash: its wake waits. And one with a sleeper that is measured to hold more than its whole seat: that it took by
    itself. And one that was said to be larger once, since records that fitted it come down only as its runtime takes
    lower limits.
    """
    found = {}
    for pod, account in open_accounts(fleet).items():
        is_ours = not any(s.claim.is_writing or s.claim.is_retrying or s.claim.generation > 1 for s in account.sittings)
        if account.plan_card is None or not is_ours or _was_lent(account):
            continue
        if account.plan_card.usable_bytes < account.pod.reading.largest_bytes:
            continue
        if all((o.lent_footprint_bytes or 0) <= o.seat.total_bytes for o in account.plan_card.occupants):
            for sentence in audit.over_promised(account.plan_card, _records(account)):
                found[pod] = sentence
    return found


def _was_lent(account: Account) -> bool:
    """Whether a record is below the floor that it is charged with, as only a seat given away leaves it."""
    charged = {o.claim: o for o in account.plan_card.occupants} if account.plan_card is not None else {}
    return any(
        o.lent_footprint_bytes is None and s.instance.kv_limit_bytes < o.seat.kv_floor_bytes
        for s in account.sittings
        if (o := charged.get(s.claim.name)) is not None
    )


def _records(account: Account) -> dict[str, int]:
    return {s.claim.name: s.instance.kv_limit_bytes for s in account.sittings}
