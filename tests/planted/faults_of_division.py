"""Wrong accounts of a Pod, and divisions whose steps come in another order or unchecked."""

from planting import Fault

ACCOUNTS, CARDS, DIVIDING, DRAFT = "modelclaim.accounts", "modelclaim.cards", "modelclaim.dividing", "modelclaim.draft"

FAULTS = (
    Fault(
        "grow before shrink: all limits are sent at once",
        DIVIDING,
        "and sitting.limit_in_force > division.targets[claim]",
        "and sitting.limit_in_force != division.targets[claim]",
    ),
    Fault(
        "a grow is sent before it is recorded",
        DIVIDING,
        "        if records:\n            return Progress(division, records=records)\n",
        "",
    ),
    Fault(
        "records go down and up at once",
        DIVIDING,
        "return downs or unsure or ups",
        "return {**downs, **unsure, **ups}",
    ),
    Fault(
        "records go up first",
        DIVIDING,
        "return downs or unsure or ups",
        "return ups or unsure or downs",
    ),
    Fault(
        "what grows is never written",
        DIVIDING,
        "and 0 <= sitting.limit_in_force < division.targets[claim]",
        "and 0 > sitting.limit_in_force",
    ),
    Fault(
        "records that go up are forgotten",
        DIVIDING,
        "        elif sitting.instance.kv_limit_bytes < target:\n            ups[claim] = target\n",
        "",
    ),
    Fault(
        "the id of a limit write does not say what it was decided on",
        CARDS,
        'operation = f"{kind}/{pod.namespace}/{key}/{limit}/{observed_ns}"',
        'operation = f"{kind}/{pod.namespace}/{key}/{limit}"',
    ),
    Fault(
        "a sleeper that is asked for gets no seat",
        ACCOUNTS,
        "asked = {uid for uid in lenders if any(s.claim.uid == uid and is_asked_for(s, pod) for s in charged)}",
        "asked = set()",
    ),
    Fault(
        "every sleeper's seat is given away",
        "modelclaim.snapshot",
        "return lifecycle is not None and lifecycle.no_wake_reserve_while_asleep",
        "return True",
    ),
    Fault(
        "a claim without figures does not block its card",
        ACCOUNTS,
        "        if sitting.claim.seat is None:\n            return",
        "        if False:\n            return",
    ),
    Fault(
        "a card is taken for a byte larger than it is",
        ACCOUNTS,
        "usable = snapshot.usable_bytes",
        "usable = 1 + snapshot.usable_bytes",
    ),
    Fault(
        "a limit is written a byte above its record",
        CARDS,
        "limit_bytes=limit, operation_id",
        "limit_bytes=limit + 1, operation_id",
    ),
    Fault(
        "a card is taken for twice its size",
        ACCOUNTS,
        "usable = snapshot.usable_bytes",
        "usable = 2 * snapshot.usable_bytes",
    ),
)
