"""A short run of what ``make chaos`` does for ten minutes: processes die at random, and no law is broken."""

from __future__ import annotations

from bench.chaos import course
from bench.chaos.course import Settings

SEED = 1
SECONDS = 60.0


def test_a_minute_of_kills_breaks_no_law_and_cuts_no_answer_without_a_reason():
    report = course.run(Settings(SECONDS, SEED))

    print(report)
    assert not report.broken
    assert len(report.kills) >= 3
    assert report.looks > 10
    assert report.answers.whole.total() > 100
