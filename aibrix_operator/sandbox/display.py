"""Say on a terminal what a sandbox is and what to do with it."""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from aibrix_operator.api import names
from aibrix_operator.sandbox import fleet, gateways, operators, pool
from aibrix_operator.sandbox.state import Sandbox
from aibrix_operator.sandbox.up import Status

_CLAIM = """\
kubectl apply -f - <<EOF
apiVersion: model.aibrix.ai/v1alpha1
kind: ModelClaim
metadata: {{name: qwen}}
spec:
  podSelector: {{matchLabels: {{{label}: {pool}}}}}
  artifactURL: huggingface://Qwen/Qwen3-0.6B
  perGPU: {{maximumFootprint: 8Gi, kvFloor: 4Gi}}
EOF"""
_QUESTION = """\
curl {url}/v1/chat/completions -H 'content-type: application/json' \\
  -d '{{"model": "qwen", "messages": [{{"role": "user", "content": "Who are you?"}}]}}'"""


def show_next_steps(sandbox: Sandbox, console: Console) -> None:
    """After ``up``: where the cluster is, and a first claim."""
    console.print(Panel.fit(f"[bold]Sandbox {sandbox.name} is up[/bold]: {_describe(sandbox)}", border_style="green"))
    # Printed without wrapping, so that it can be copied from a narrow terminal.
    console.print(f"export KUBECONFIG={sandbox.kubeconfig}", soft_wrap=True, highlight=False)
    console.print("\nClaim room for a model:\n", highlight=False)
    console.print(_CLAIM.format(label=names.POOL_LABEL, pool=pool.POOL), soft_wrap=True, highlight=False, markup=False)
    addresses = gateways.list_gateways(sandbox)
    if addresses:
        console.print("\nAsk it through the gateway:\n", highlight=False)
        console.print(_QUESTION.format(url=addresses[0].url), soft_wrap=True, highlight=False, markup=False)
    pages = operators.list_operators(sandbox)
    if pages:
        console.print(f"\nWatch its cards: {pages[0].page_url}", soft_wrap=True, highlight=False)
    console.print("\nThen look at it, and end it all:\n", highlight=False)
    for line in (
        "kubectl get modelclaims --watch",
        f"aibrix-operator sandbox status {sandbox.name}",
        f"aibrix-operator sandbox down {sandbox.name}",
    ):
        console.print(line, soft_wrap=True, highlight=False)


def environment(sandbox: Sandbox) -> list[str]:
    """Lines for a shell: where the cluster, the first gateway and the first operator's page are."""
    told = {"KUBECONFIG": str(sandbox.kubeconfig)}
    if addresses := gateways.list_gateways(sandbox):
        told["AIBRIX_GATEWAY"] = addresses[0].url
    if pages := operators.list_operators(sandbox):
        told["AIBRIX_PAGE"] = pages[0].page_url
    return [f"export {name}={shlex.quote(value)}" for name, value in told.items()]


def show_status(status: Status, console: Console) -> None:
    """Tables of processes and Pods."""
    sandbox = status.sandbox
    console.print(f"Sandbox [bold]{sandbox.name}[/bold]: {_describe(sandbox)}", highlight=False)
    console.print(f"KUBECONFIG={sandbox.kubeconfig}  logs in {sandbox.logs}", soft_wrap=True, highlight=False)
    for gateway in status.gateways:
        console.print(
            f"{gateway.name}: {gateway.url}  status at {gateway.api_url}/status", soft_wrap=True, highlight=False
        )
    for one in status.operators:
        console.print(
            f"{one.name}: page at {one.page_url}  metrics at {one.url}/metrics", soft_wrap=True, highlight=False
        )
    table = Table("Process", "PID", "State", "Memory", title="Processes", title_justify="left")
    for row in status.processes:
        state = "[green]running[/green]" if row.is_alive else "[red]ended[/red]"
        table.add_row(row.name, str(row.pid), state, f"{row.memory_bytes >> 20} MiB" if row.is_alive else "")
    console.print(table)
    if status.pods is None:
        console.print(f"[red]The API server is not running[/red]; `sandbox up {sandbox.name}` starts everything anew.")
        return
    pods = Table("Namespace", "Pod", "Node", "Address", "State", "Processes", title="Pods", title_justify="left")
    for pod in status.pods:
        ready = "[green]ready[/green]" if pod.is_ready else pod.phase
        pods.add_row(pod.namespace, pod.name, pod.node, pod.address, ready, str(pod.processes or ""))
    console.print(pods)


def _describe(sandbox: Sandbox) -> str:
    nodes = len(sandbox.nodes)
    return f"{nodes} node{'s' if nodes > 1 else ''} with {fleet.describe_cards(sandbox.nodes)}"
