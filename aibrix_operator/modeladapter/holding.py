"""Whether a Pod's engine has the adapter, as far as anybody has said. Pure.

The engine's list is the truth about everything that it was told before it was asked. What it was told since is known by
how that call ended, and not known at all after a call without an answer: then only the next list tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from aibrix_operator.modeladapter.memory import Word
from aibrix_operator.modeladapter.retries import Tries
from aibrix_operator.modeladapter.snapshot import PodFacts, Verdict


class Held(Enum):
    """What is known."""

    YES = "yes"
    NO = "no"
    NOT_KNOWN = "not known"
    """Nobody has been asked yet, or the last call may have been carried out."""
    NO_ANSWER = "no answer"
    """The engine was asked and did not answer. A Pod that has it stays: an engine that is merely slow must not lose its
    requests, and one that is down makes its Pod unready."""
    BASE = "base"
    """The engine serves a base model of that name."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One Pod in one pass."""

    pod: PodFacts
    held: Held
    word: Word | None
    tries: Tries
    is_in_flight: bool
    loaded_from: str
    """The address that it was loaded from, by the status; empty: it does not say."""

    @property
    def name(self) -> str:
        """The Pod's."""
        return self.pod.name

    @property
    def has_failed(self) -> bool:
        """Whether the last try to load it did not succeed, by its count."""
        return self.tries.count > 0

    @property
    def trouble(self) -> str:
        """Why it is not loaded there; empty when nothing has gone wrong so far."""
        if self.held is Held.BASE:
            return "its engine serves a base model of this name"
        if self.held is Held.NO_ANSWER and self.pod.listing is not None:
            return self.pod.listing.error
        if not self.has_failed:
            return ""
        ending = f" (tried {self.tries.count} times, not tried any more)" if self.tries.is_given_up else ""
        told = self.word.message if self.word is not None and self.word.loads else "the last try failed"
        return told + ending


def held_by(pod: PodFacts, name: str, word: Word | None) -> Held:
    """What is known of adapter ``name`` in the Pod's engine."""
    listing = pod.listing
    if listing is not None and (word is None or listing.asked_at_s >= word.ended_at_s):
        if listing.error:
            return Held.NO_ANSWER  # it may have started anew since we were told anything
        found = listing.models.get(name)
        if found is None:
            return Held.NO
        return Held.BASE if found.is_base else Held.YES
    if word is not None and word.verdict is not Verdict.UNKNOWN:
        if word.verdict is Verdict.DONE:
            return Held.YES if word.loads else Held.NO
        # A load that was refused changed nothing, and was only sent where the engine had none.
        return Held.NO if word.loads else Held.NOT_KNOWN
    return Held.NOT_KNOWN
