"""What each simulated schedule has to come to."""

from aibrix_operator.sim.play import play
from aibrix_operator.sim.report_text import replay_command


def passes(seed, faults=None, only=None):
    """Play the schedule; fails with its story and the command that replays it."""
    outcome = play(seed, faults, only=only)
    command = replay_command(outcome, faults, whole=only is None)
    assert outcome.violations == (), "\n".join([*outcome.story, *outcome.violations, command])
    return outcome
