"""``python -m vllm.entrypoints.openai.api_server``: become a simulated vLLM engine.

The agent's interpreter may lack this project's package, so the process turns into the interpreter named by
``AIBRIX_SIM_PYTHON`` (default: its own). It keeps its pid, session and process group, which the agent watches.
"""

import os
import sys

if __name__ == "__main__":
    _python = os.environ.get("AIBRIX_SIM_PYTHON") or sys.executable
    os.execv(_python, [_python, "-m", "aibrix_operator.sim.engine", "vllm", *sys.argv[1:]])
