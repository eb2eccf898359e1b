"""``python -m sglang.launch_server``: become a simulated SGLang engine, as the vLLM stand-in does."""

import os
import sys

if __name__ == "__main__":
    _python = os.environ.get("AIBRIX_SIM_PYTHON") or sys.executable
    os.execv(_python, [_python, "-m", "aibrix_operator.sim.engine", "sglang", *sys.argv[1:]])
