"""What stands in for a warm Pod's container: started with the Pod's address, becomes the sidecar that its env names.

``E2E_SIDECAR`` is ``ours`` (the default), ``upstream`` (AIBrix's own, of the interpreter ``AIBRIX_UPSTREAM_PYTHON``),
or ``bad`` with one of ``bad_runtime``'s ways in ``E2E_FAULT``.
"""

import os
import sys
from pathlib import Path

ADDRESS = sys.argv[1]


def become(*command: str) -> None:
    os.execv(command[0], command)


def as_upstream_expects() -> None:
    """It knows no directory for segments but the machine's, and an engine's 0.0.0.0 must not reach other Pods' ports:
    a Pod has a loopback of its own, whose place the machine's takes here."""
    os.environ["AIBRIX_KV_SEGMENT_DIR"] = "/dev/shm"
    os.environ["AIBRIX_SIM_PYTHON"] = sys.executable
    os.environ["AIBRIX_SIM_LISTEN"] = f"127.0.0.1,{ADDRESS}"


match os.environ.get("E2E_SIDECAR", "ours"):
    case "ours":
        become(sys.executable, "-m", "aibrix_operator.cli", "runtime")
    case "upstream":
        as_upstream_expects()
        become(os.environ["AIBRIX_UPSTREAM_PYTHON"], "-m", "aibrix.app", "--host", ADDRESS, "--port", "8080")
    case "bad":
        become(sys.executable, str(Path(__file__).with_name("bad_runtime.py")), ADDRESS, os.environ["E2E_FAULT"])
    case other:
        sys.exit(f"E2E_SIDECAR={other} is no sidecar")
