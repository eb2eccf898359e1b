"""Runs under checkov's own Python: checks each manifest by itself, all in one process, and prints what failed.

``checkov_run.py FILE…`` prints one JSON object: file → {"passed": count, "failed": [[check, resource], …]}.
"""

import json
import logging
import sys

logging.disable(logging.CRITICAL)  # it says at length that it cannot reach its maker

from checkov.kubernetes.runner import Runner  # noqa: E402 - its import is what speaks first
from checkov.runner_filter import RunnerFilter  # noqa: E402


def main(files: list[str]) -> None:
    found = {}
    for file in files:
        report = Runner().run(root_folder=None, files=[file], runner_filter=RunnerFilter(framework=["kubernetes"]))
        skipped = [[record.check_id, record.resource] for record in report.skipped_checks]
        failed = [[record.check_id, record.resource] for record in report.failed_checks]
        found[file] = {"passed": len(report.passed_checks), "failed": failed + skipped}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
