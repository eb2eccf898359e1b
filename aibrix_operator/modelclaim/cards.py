"""Which cards are divided, when, and what is remembered of each between passes."""

from __future__ import annotations

from collections.abc import Mapping

from aibrix_operator.api.modelclaim import Reason
from aibrix_operator.ledger import audit, figures
from aibrix_operator.ledger import division as ledger_division
from aibrix_operator.ledger.card import Occupant
from aibrix_operator.ledger.division import CannotDivide, Held, RoundVerdict
from aibrix_operator.modelclaim import dividing
from aibrix_operator.modelclaim.accounts import Account, Sitting, by_claim
from aibrix_operator.modelclaim.dividing import Progress
from aibrix_operator.modelclaim.draft import BOOT_PACE_S, ROUND_S, Draft, pod_ref
from aibrix_operator.modelclaim.memory import CardMemory, Cause, Division, Stage
from aibrix_operator.modelclaim.snapshot import Pod
from aibrix_operator.modelclaim.steps import EventType, Note, SetLimits
from aibrix_operator.runtime_api import wire

ANNOUNCED_FAILURE = 3
"""The failed division in a row that is announced first, and again every ``ANNOUNCED_AGAIN``."""
ANNOUNCED_AGAIN = 30
RUN_ENDS_S = 300.0
"""Without a failure for so long, the next one is the first of a new run."""


def remember_accounts(draft: Draft) -> None:
    """Note what ends a claim's wait early: room that came free, Pods that joined or turned ready."""
    for account in draft.accounts.values():
        pod, before = account.pod, draft.card_memory(account.pod)
        changes: dict[str, object] = {}
        is_new = pod.uid not in draft.cards
        if pod.is_ready and not before.was_ready:
            draft.look_again(pod, 0.0)  # its runtime could not be read a moment ago, and can be now
        if is_new or (pod.is_ready and not before.was_ready):
            changes |= {"joined_pass": draft.passes, "freed_pass": draft.passes, "was_ready": pod.is_ready}
        if account.card is not None:
            # Instances that never started are left out: two refused claims would keep waking each other.
            started = {s.claim.name for s in account.sittings if s.instance.port or s.engine}
            promised = sum(o.promised_bytes for o in account.card.occupants if o.claim in started)
            promised += account.card.reserved_bytes
            if not before.was_judged or promised < before.promised_bytes:
                changes["freed_pass"] = draft.passes
            if promised != before.promised_bytes or not before.was_judged:
                changes |= {"promised_bytes": promised, "was_judged": True}
        elif account.hole and before.was_judged:
            changes["was_judged"] = False
        if changes:
            draft.remember_card(pod, **changes)
        _remember_newcomer(account, draft)


def _remember_newcomer(account: Account, draft: Draft) -> None:
    """Charge the claim that a placement under way will seat here, from its plan to its record."""
    division = draft.card_memory(account.pod).division
    if division is None or not division.newcomer:
        return
    claim = next((c for c in draft.fleet.claims if c.name == division.newcomer), None)
    if claim is None or claim.is_deleting or claim.seat is None or claim.seat != division.newcomer_seat:
        drop(account.pod, draft)
    elif claim.name not in by_claim(account):
        if claim.status.instances and not claim.is_moving:
            drop(account.pod, draft)  # a write that was thought lost has placed it elsewhere
        else:
            draft.newcomers[account.pod.name] = Occupant(claim.name, claim.seat)


def continue_divisions(draft: Draft, records: dict[str, tuple[str, int]]) -> None:
    """Carry every division one safe step further; one whose card changed under it is dropped."""
    for account in draft.accounts.values():
        division = draft.card_memory(account.pod).division
        if division is None:
            continue
        if account.hole:
            drop(account.pod, draft)
        elif account.card is not None and draft.is_free(account.pod) and draft.is_settled(account):
            if _is_outdated(account, division, draft):
                drop(account.pod, draft)
            else:
                apply(account, division, dividing.advance(account, division), draft, records)


def drop(pod: Pod, draft: Draft) -> None:
    """Give a division up that has not come to its end. What it has taken from anybody is dealt again."""
    draft.newcomers.pop(pod.name, None)
    draft.remember_card(pod, division=None)
    deal_again(pod, draft)


def deal_again(pod: Pod, draft: Draft) -> None:
    """Have the card divided for the composition that it was divided for last: its records are others than were dealt
    then, and limits that are as recorded give no round a cause."""
    if draft.card_memory(pod).divided_for is not None:
        draft.remember_card(pod, divided_for=frozenset())


def _is_outdated(account: Account, division: Division, draft: Draft) -> bool:
    """Whether the composition is another than the division was planned for, its newcomer apart."""
    newcomer = next((c.uid for c in draft.fleet.claims if c.name == division.newcomer), "")
    return frozenset(m for m in account.composition if m[0] != newcomer) != division.composition


def apply(
    account: Account, division: Division, progress: Progress, draft: Draft, records: dict[str, tuple[str, int]]
) -> None:
    """Put what a division does now into the draft."""
    pod = account.pod
    if progress.writes:
        kind = "kv-plan-back" if progress.failure else "kv-plan"
        draft.ask(pod, limit_step(account, progress.writes, kind))
    for claim, limit in progress.records.items():
        records[claim] = (pod.name, limit)
    if progress.failure:
        _failed(account, division, progress.failure, draft)
    elif progress.is_done:
        _finished(account, division, draft)
    else:
        draft.remember_card(pod, division=progress.division)


def limit_step(account: Account, limits: Mapping[str, int], kind: str) -> SetLimits:
    """Writes of KV limits (claim name → bytes) with operation ids that carry the reading's time: an engine that came
    back since must take the same value again."""
    pod, snapshot, sittings = account.pod, account.pod.reading.snapshot, by_claim(account)
    assert snapshot is not None
    observed_ns = int(snapshot.observed_at.timestamp() * 1_000_000) * 1_000
    writes = []
    for claim, limit in limits.items():
        key = f"{pod.uid}/{claim}" if kind.startswith("kv-plan") else f"{claim}/{pod.uid}"
        operation = f"{kind}/{pod.namespace}/{key}/{limit}/{observed_ns}"
        model = sittings[claim].claim.model
        writes.append(wire.KVLimitRequest(model_name=model, limit_bytes=limit, operation_id=operation))
    return SetLimits(pod_ref(pod), tuple(writes))


def _finished(account: Account, division: Division, draft: Draft) -> None:
    draft.remember_card(
        account.pod,
        division=None,
        divided_for=account.composition,
        next_round_s=draft.now.monotonic_s + ROUND_S,
        short=frozenset(),
        failures=0,
        undividable="",
    )
    # A grow that did not take shows in no reading that differs.
    draft.wake_pod_at(account.pod, draft.now.monotonic_s + ROUND_S)
    if division.cause is Cause.ROUND:
        return
    sittings = by_claim(account)
    for claim, target in division.targets.items():
        before, sitting = division.before[claim], sittings.get(claim)
        if sitting is None or claim == division.newcomer or before < 0 or before == target:
            continue
        if sitting.limit_in_force == target:
            message = (
                f"model {sitting.claim.model} on pod {account.pod.name}: KV limit set to {figures.gib(target)}, "
                f"from {figures.gib(before)}, dividing the card between {len(sittings)} engine(s)"
            )
            draft.note(sitting.claim, Note(EventType.NORMAL, Reason.KV_LIMIT_SET, message))


def _failed(account: Account, division: Division, error: str, draft: Draft) -> None:
    """Count a failed division, tell the claim that was to be placed, and let the card rest for a round."""
    pod, now_s = account.pod, draft.now.monotonic_s
    before = draft.card_memory(pod)
    in_a_row = 1 + (before.failures if now_s - before.last_failure_s <= RUN_ENDS_S else 0)
    draft.remember_card(
        pod, division=None, failures=in_a_row, last_failure_s=now_s, next_round_s=now_s + ROUND_S, short=frozenset()
    )
    draft.wake_pod_at(pod, now_s + ROUND_S)
    if division.stage is not Stage.SHRINKING:
        deal_again(pod, draft)  # records may have fallen, and nobody is given back more than is recorded
    if division.newcomer:
        draft.remember_card(pod, undividable=error, undividable_until_s=now_s + ROUND_S)
        draft.newcomers.pop(pod.name, None)
        claim = next(c for c in draft.fleet.claims if c.name == division.newcomer)
        message = f"{claim.model} could not be held to its share of {pod.name}: {error}"
        draft.note(claim, Note(EventType.WARNING, Reason.KV_LIMIT_FAILED, message))
    if in_a_row >= ANNOUNCED_FAILURE and (in_a_row - ANNOUNCED_FAILURE) % ANNOUNCED_AGAIN == 0:
        for sitting in account.sittings:
            message = (
                f"model {sitting.claim.model} on pod {pod.name}: its card could not be divided {in_a_row} times in a "
                f"row, and is tried again every {ROUND_S:.0f} s: {error}"
            )
            draft.note(sitting.claim, Note(EventType.WARNING, Reason.KV_LIMIT_FAILED, message))


def start_divisions(draft: Draft, records: dict[str, tuple[str, int]]) -> None:
    """Divide the cards whose composition changed, and those for which the round is due and finds cause."""
    for account in draft.accounts.values():
        memory = draft.card_memory(account.pod)
        if account.card is None or memory.division is not None or account.pod.name in draft.newcomers:
            continue
        if not (draft.is_free(account.pod) and draft.is_settled(account)) or account.pod.uid in draft.unrouting:
            continue
        if not _put_right(account, draft, records):
            _start_one(account, memory, draft, records)


def _put_right(account: Account, draft: Draft, records: dict[str, tuple[str, int]]) -> bool:
    """Take back at once what is recorded past the card and no engine has; whether there was any. It asks nothing of the
    runtime, and so waits neither for one that takes no limits nor for the round."""
    rightful = rightful_records(account) if records_overdraw(account) else {}
    _tell_beyond_card(account, rightful, draft)
    records |= {claim: (account.pod.name, record) for claim, record in rightful.items()}
    if rightful:
        deal_again(account.pod, draft)
    return bool(rightful)


def rightful_records(account: Account) -> dict[str, int]:
    """The records that fall on an overdrawn card: to the limit that their engine is held to, or, where nothing bounds
    it yet and more is recorded than the card can hold, to what the others leave."""
    assert account.plan_card is not None
    usable_bytes = account.plan_card.usable_bytes
    before = {s.claim.name: s.instance.kv_limit_bytes for s in account.sittings}
    records, sittings = dict(before), by_claim(account)
    unbounded: list[Occupant] = []
    for occupant in account.plan_card.occupants:
        sitting, floor = sittings[occupant.claim], occupant.seat.kv_floor_bytes
        if occupant.lent_footprint_bytes is not None:
            continue
        limit, record = sitting.limit_in_force, records[occupant.claim]
        is_ours = record <= usable_bytes
        # One that came back has the whole card as its limit until it takes another: that bounds nobody's 1 TiB.
        if dividing.is_held(sitting) and limit >= 0 and (is_ours or limit < usable_bytes):
            # What it maps past its limit is kept for it if we promised that. What another hand wrote never was, and
            # would be more than there is together with its neighbours' limits. A sleeper that is held to nothing gave
            # its seat away while its pool let it, and has yet to find room for it.
            has_given = sitting.is_asleep and limit == 0
            least = 0 if has_given else occupant.keep_bytes if is_ours else floor
            records[occupant.claim] = min(record, max(limit, least))
        elif is_beyond_card(account, sitting):
            unbounded.append(occupant)
    promised = sum(_promise(o, records[o.claim]) for o in account.plan_card.occupants)
    over = promised - usable_bytes
    for occupant in reversed(unbounded):
        cut = max(0, min(over, records[occupant.claim] - occupant.seat.kv_floor_bytes))
        records[occupant.claim] -= cut
        over -= cut
    return {claim: record for claim, record in records.items() if record < before[claim]}


def _promise(occupant: Occupant, record: int) -> int:
    """What it may take with that record."""
    if occupant.lent_footprint_bytes is not None:
        return occupant.lent_footprint_bytes
    return occupant.seat.footprint_bytes + max(record, occupant.seat.kv_floor_bytes)


def _start_one(account: Account, memory: CardMemory, draft: Draft, records: dict[str, tuple[str, int]]) -> None:
    pod, now_s, composition = account.pod, draft.now.monotonic_s, account.composition
    is_changed = memory.divided_for != composition
    if is_changed and not composition:
        draft.remember_card(pod, divided_for=composition, failures=0)
        return
    if not is_changed and not composition:
        return
    is_due = now_s >= memory.next_round_s
    if is_due and not is_changed and memory.short and pod.reading.sequence <= memory.round_reading:
        # Two rounds need two looks: one reading that is judged twice shows nothing that lasts.
        draft.look_again(pod, 0.0)
        draft.wake_pod_at(pod, now_s + BOOT_PACE_S)
        return
    if not is_due and memory.failures:
        _wait_for_round(account, memory, draft)
        return
    assert account.plan_card is not None
    cause = Cause.COMPOSITION if is_changed and memory.divided_for is not None else Cause.ROUND
    try:
        targets = ledger_division.divide(account.plan_card)
    except CannotDivide as error:
        if account.plan_card.reserved_bytes:
            return  # room is being made here, and nothing is dealt before there is some
        if not is_due and not is_changed:
            _wait_for_round(account, memory, draft)
            return
        _failed(account, dividing.plan(account, cause, {}), str(error), draft)
        return
    if not is_due and not is_changed:
        verdict = _verdict(account, memory, targets)
        if verdict.divide or verdict.short or memory.short or records_overdraw(account):
            _wait_for_round(account, memory, draft)
        return
    if cause is Cause.ROUND and not _is_worth_it(account, memory, targets, draft):
        return
    division = dividing.plan(account, cause, targets)
    apply(account, division, dividing.begin(account, division), draft, records)


def records_overdraw(account: Account) -> bool:
    """Whether the records sum to more than the card has: another hand wrote one, or the card was said to be larger."""
    records = {s.claim.name: s.instance.kv_limit_bytes for s in account.sittings}
    return account.plan_card is not None and bool(audit.over_promised(account.plan_card, records))


def is_beyond_card(account: Account, sitting: Sitting) -> bool:
    """Whether its record is more than the card can hold beside everybody at its floor: another hand wrote it, and no
    engine is grown to it before the card is divided anew."""
    card, seat, record = account.plan_card, sitting.claim.seat, sitting.instance.kv_limit_bytes
    if card is None or seat is None or record <= seat.kv_floor_bytes:
        return False
    others = sum(o.promised_bytes for o in card.occupants if o.claim != sitting.claim.name)
    return seat.footprint_bytes + record + others > card.usable_bytes


def _tell_beyond_card(account: Account, targets: Mapping[str, int], draft: Draft) -> None:
    """Say whose record is put right."""
    for sitting in account.sittings:
        claim, record = sitting.claim, sitting.instance.kv_limit_bytes
        if claim.name in targets and is_beyond_card(account, sitting):
            message = (
                f"model {claim.model} on pod {account.pod.name}: a KV limit of {figures.gib(record)} is recorded, "
                "which is more than its card can hold beside its neighbours; "
                f"it is set to {figures.gib(targets[claim.name])}"
            )
            draft.note(claim, Note(EventType.WARNING, Reason.KV_LIMIT_FAILED, message))


def _wait_for_round(account: Account, memory: CardMemory, draft: Draft) -> None:
    """Have the next round come when it is due: no reading need announce what is left to do."""
    draft.wake_pod_at(account.pod, memory.next_round_s)
    draft.look_again(account.pod, max(0.0, memory.next_round_s - draft.now.monotonic_s))


def _verdict(account: Account, memory: CardMemory, targets: Mapping[str, int]) -> RoundVerdict:
    assert account.plan_card is not None
    held = [_held(s) for s in account.sittings if s.is_charged]
    return ledger_division.round_verdict(account.plan_card, held, targets, memory.short)


def _is_worth_it(account: Account, memory: CardMemory, targets: Mapping[str, int], draft: Draft) -> bool:
    """Whether the round divides the card; remembers what the next round must know."""
    assert account.plan_card is not None
    held = [_held(s) for s in account.sittings if s.is_charged]
    verdict = _verdict(account, memory, targets)
    threshold = ledger_division.threshold_bytes(account.plan_card.usable_bytes)
    is_first = memory.divided_for is None and any(
        abs(targets[h.claim] - h.limit_bytes) >= threshold for h in held if h.limit_bytes >= 0
    )
    has_no_record = memory.divided_for is None and any(not h.record_bytes for h in held)
    if records_overdraw(account):
        _tell_beyond_card(account, targets, draft)
        return True
    if verdict.divide or is_first or has_no_record:
        return True
    next_s = draft.now.monotonic_s + ROUND_S
    draft.remember_card(
        account.pod,
        short=verdict.short,
        next_round_s=next_s,
        round_reading=account.pod.reading.sequence,
        divided_for=account.composition,
        failures=0,
    )
    if verdict.short:
        draft.wake_pod_at(account.pod, next_s)
        draft.look_again(account.pod, ROUND_S)
    return False


def _held(sitting: Sitting) -> Held:
    waiting = sitting.engine.requests_waiting if sitting.engine is not None else 0
    return Held(sitting.claim.name, sitting.limit_in_force, sitting.instance.kv_limit_bytes, waiting)


def is_being_divided(pod: Pod, claim: str, draft: Draft) -> bool:
    """Whether a division under way decides this engine's limit, so that nothing else may write it."""
    division = draft.card_memory(pod).division
    return division is not None and claim in division.targets
