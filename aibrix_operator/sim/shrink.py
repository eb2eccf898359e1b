"""Cut a failing schedule down to the actions without which it does not fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from aibrix_operator.sim.play import Outcome, play

MOST_PLAYS = 60


def kind_of(violation: str) -> str:
    """What kind of failure a sentence tells of: the sentence without its figures and names."""
    return re.sub(r"(at )?[\d.]+( s:)?|(claim|pod|operator)-\d+|'[^']*'", "", violation.partition("\n")[0]).strip()


def shrink(outcome: Outcome, faults: Collection[str] | None) -> Outcome:
    """The outcome of the shortest schedule that was found to fail in the same way; ``outcome`` itself at worst."""
    wanted = kind_of(outcome.violations[0])
    best = outcome

    def fails(numbers: Sequence[int]) -> bool:
        nonlocal best
        played = play(outcome.seed, faults, only=numbers)
        if all(kind_of(v) != wanted for v in played.violations):
            return False
        best = played
        return True

    cut_down(outcome.actions, fails, MOST_PLAYS)
    return best


def cut_down(numbers: Sequence[int], fails: Callable[[Sequence[int]], bool], most: int) -> Sequence[int]:
    """Leave out halves, then quarters, and so on down to single ones, as long as it still ``fails``.

    The last ones first: what comes after the failure matters least.
    """
    kept, size = list(numbers), max(1, len(numbers) // 2)
    while most > 0:
        end = len(kept)
        is_smaller = False
        while end > 0 and most > 0:
            without = kept[: max(0, end - size)] + kept[end:]
            most -= 1
            if fails(without):
                kept, is_smaller = without, True
            end -= size
        if size == 1 and not is_smaller:
            break
        size = max(1, size // 2)
    return kept
