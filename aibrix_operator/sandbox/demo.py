"""The main job in one minute: ``aibrix-operator sandbox demo``.

A real API server, the operator, a gateway with its Envoy, the runtime sidecar and stand-in engines on one simulated
H20: a claim has the card to itself, shares it with a second one, a third is told why it has to wait, and the room comes
back. Then the model falls asleep, and a request wakes it. Figures are checked.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape

from aibrix_operator.api import names
from aibrix_operator.api.quantity import figure_bytes
from aibrix_operator.cluster.resource import Object
from aibrix_operator.explain import picture
from aibrix_operator.ledger import figures
from aibrix_operator.sandbox import gateways, state, up
from aibrix_operator.sandbox.kubectl import Kubectl, KubectlError
from aibrix_operator.sandbox.pool import DEPLOYMENT, POOL
from aibrix_operator.sandbox.real_engine import questions
from aibrix_operator.sandbox.state import Sandbox

FOOTPRINT, FLOOR = "30Gi", "10Gi"
WAKE_WAIT_S = 30
CONFIG = json.dumps({"profiles": {"default": {"wakeWaitSeconds": WAKE_WAIT_S}}})
"""Of each claim: a request to a sleeping model waits for it instead of being told to come again."""
POLICY = json.dumps({"lifecycle": {"sleepAfterSeconds": 2}})
WITHIN_S = 60.0
_POLL_S = 0.2

ALONE_BYTES = 69_889_855_324
SHARED_BYTES = 18_838_800_302


class DemoError(Exception):
    """Something was not as it should be; the text says what was expected and what was seen."""


def run(console: Console) -> int:
    """The whole demo; 0 when every step went as it should."""
    started = time.monotonic()
    name = f"demo-{os.getpid()}"
    try:
        options = up.Options(gateways=1)
        sandbox = up.up(name, options, lambda line: console.print(f"[dim]{escape(line)}[/dim]", highlight=False))
        try:
            _Stage(console, sandbox).play()
        finally:
            console.print("[dim]taking the sandbox down[/dim]")
            if state.load(name) is not None:
                up.down(name)
    except (DemoError, KubectlError, questions.NoAnswer) as error:
        console.print(f"[bold red]The demo failed.[/bold red] {escape(str(error))}", highlight=False)
        return 1
    console.print(f"[bold green]Done[/bold green] in {time.monotonic() - started:.0f} s.", highlight=False)
    return 0


class _Stage:
    """The steps, each of which raises DemoError when the world is not as it should be."""

    def __init__(self, console: Console, sandbox: Sandbox) -> None:
        self._console = console
        self._kubectl = Kubectl(sandbox.kubeconfig)
        (self._gateway,) = gateways.list_gateways(sandbox)
        self._pod = self._kubectl.get("pods", "--selector", f"{names.POOL_LABEL}={POOL}")["items"][0]

    def play(self) -> None:
        """All of it, in order."""
        with self._step("model-a is applied, and has the card to itself"):
            self._apply("model-a")
            self._wait_limits({"model-a": ALONE_BYTES})
        with self._step("model-b is applied, and the card is divided between the two"):
            self._apply("model-b")
            self._wait_limits({"model-a": SHARED_BYTES, "model-b": SHARED_BYTES})
        with self._step("model-c is applied, finds no room, and is told why"):
            self._apply("model-c")
            self._wait("a refusal of model-c", self._refused)
            self._console.print(f"  {escape(self._refused())}", highlight=False, style="yellow")
        for claim in ("model-a", "model-b"):
            self._ask(claim)
        with self._step("model-b and model-c are deleted, and model-a gets its room back"):
            self._kubectl.run("delete", "modelclaims", "model-b", "model-c", f"--timeout={WITHIN_S:.0f}s")
            self._wait_limits({"model-a": ALONE_BYTES})
        with self._step("the pool gets a sleep policy, and model-a, which nobody asks, falls asleep"):
            policy = f"{names.POOL_POLICY_ANNOTATION}={POLICY}"
            self._kubectl.run("annotate", f"deployment/{DEPLOYMENT}", policy)
            self._wait("model-a to sleep", self._is_asleep)
        with self._step("a request wakes it: the gateway holds it meanwhile"):
            asked = time.monotonic()
            self._ask("model-a")
            self._console.print(f"  [dim]answered after {time.monotonic() - asked:.1f} s[/dim]", highlight=False)

    def _is_asleep(self) -> bool:
        """Also by the route, which is written beside the status: the gateway goes by it."""
        pod = self._kubectl.get("pod", self._pod["metadata"]["name"])
        route = json.loads(pod["metadata"]["annotations"].get(names.route_annotation("model-a"), "{}"))
        return self._phase("model-a") == "Sleeping" and route.get("state") == "sleeping"

    def _phase(self, claim: str) -> str:
        phase: str = self._kubectl.get("modelclaim", claim).get("status", {}).get("phase", "")
        return phase

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self._console.print(f"\n[bold]▸ {title}[/bold]")
        started = time.monotonic()
        yield
        self._console.print(self._draw())
        self._console.print(f"  [dim]{time.monotonic() - started:.1f} s[/dim]", highlight=False)

    def _apply(self, name: str) -> None:
        self._kubectl.apply(
            {
                "apiVersion": f"{names.MODEL_GROUP}/{names.MODEL_VERSION}",
                "kind": "ModelClaim",
                "metadata": {"name": name, "annotations": {names.CONFIG_ANNOTATION: CONFIG}},
                "spec": {
                    "podSelector": {"matchLabels": {names.POOL_LABEL: POOL}},
                    "artifactURL": f"huggingface://example/{name}",
                    "perGPU": {"maximumFootprint": FOOTPRINT, "kvFloor": FLOOR},
                },
            }
        )

    def _claims(self) -> list[Object]:
        claims: list[Object] = self._kubectl.get("modelclaims")["items"]
        return claims

    def _limits(self) -> dict[str, int]:
        """Claim → KV limit of those that serve."""
        return {
            claim["metadata"]["name"]: claim["status"]["instances"][0]["kvLimitBytes"]
            for claim in self._claims()
            if claim.get("status", {}).get("phase") == "Active"
        }

    def _wait_limits(self, wanted: dict[str, int]) -> None:
        text = ", ".join(f"{claim} at {figures.gib(size)}" for claim, size in wanted.items())
        self._wait(text, lambda: self._limits() == wanted)

    def _refused(self) -> str:
        """The message that refuses model-c; empty while there is none."""
        claim = self._kubectl.get("modelclaim", "model-c")
        for condition in claim.get("status", {}).get("conditions", ()):
            if condition["type"] == "Scheduled" and condition["reason"] == "NoMatchingPods":
                message: str = condition["message"]
                if "at most 15.1 GiB" not in message:
                    raise DemoError(f"expected model-c to be offered at most 15.1 GiB, and it is told: {message}")
                return message
        return ""

    def _wait(self, what: str, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_so():
            if time.monotonic() > deadline:
                seen = {c["metadata"]["name"]: c.get("status") for c in self._claims()}
                raise DemoError(f"expected {what} within {WITHIN_S:.0f} s, and saw {seen}")
            time.sleep(_POLL_S)

    def _ask(self, model: str) -> None:
        """One question to the gateway, as any client of OpenAI's API asks it."""
        answer = questions.ask("127.0.0.1", self._gateway.port, model, "Who shares this card with you?")
        self._console.print(f"\n[bold]{model}[/bold] answers: {escape(answer)}", highlight=False)

    def _draw(self) -> object:
        seen = questions.snapshot(self._pod["status"]["podIP"])
        shares = [
            picture.Share(
                claim["metadata"]["name"],
                figure_bytes("maximumFootprint", claim["spec"]["perGPU"]["maximumFootprint"]),
                instance["kvLimitBytes"],
            )
            for claim in self._claims()
            for instance in claim.get("status", {}).get("instances") or ()
        ]
        usable = min(card["hbm_usable_bytes"] for card in seen["accelerators"])
        return picture.draw(f"H20 of pod {self._pod['metadata']['name']}", usable, shares)
