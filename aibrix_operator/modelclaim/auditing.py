"""Hold a snapshot against the ledger's laws: what was promised, not what engines did of themselves."""

from __future__ import annotations

from aibrix_operator.ledger import audit
from aibrix_operator.modelclaim.accounts import Account, open_accounts
from aibrix_operator.modelclaim.snapshot import Fleet


def broken_laws(fleet: Fleet) -> dict[str, str]:
    """Pod name → a sentence, for cards whose records and footprints sum to more than they have; empty when all is well.

    A card on which a write is under way is passed over: which of the two records counts is not known yet. A user who
    raises ``perGPU`` breaks the sum until the next pass has divided the card, so one sight proves nothing.
    """
    found = {}
    for pod, account in open_accounts(fleet).items():
        if account.plan_card is not None and not any(s.claim.is_writing for s in account.sittings):
            for sentence in audit.over_promised(account.plan_card, _records(account)):
                found[pod] = sentence
    return found


def _records(account: Account) -> dict[str, int]:
    return {s.claim.name: s.instance.kv_limit_bytes for s in account.sittings}
