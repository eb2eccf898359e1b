"""The chart's alert rules: Prometheus accepts them, each fires when it should, and none does when all is well."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[2] / "charts" / "aibrix-operator" / "files" / "alerts" / "aibrix-operator.yaml"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
FILE = yaml.safe_load(RULES.read_text())
ALERTS = {rule["alert"]: rule for group in FILE["groups"] for rule in group["rules"]}

POD = {"namespace": "ml", "pod": "warm-0"}
MODEL = {"namespace": "ml", "model": "qwen"}
VIOLATIONS = 'aibrix_modelclaim_ledger_violations_total{namespace="ml"}'
GAVE_UP = 'aibrix:modelclaim_engine_restart_budget_exhausted_total{pod="warm-0",model="qwen"}'
ACTIONS = "aibrix_modelclaim_pool_policy_actions_total"
WARMUPS = "aibrix_modelwarmup_warmups"
WRITES = "aibrix_controller_writes_total"
DECISIONS = "aibrix_gateway_decision_seconds_bucket"


@dataclass(frozen=True)
class Story:
    """Series by the minute, and the alert that they come to."""

    alert: str
    series: dict[str, str]
    """Series → values, in promtool's notation."""
    at: str
    summary: str
    labels: dict[str, str]


# What stands still where nothing is wrong: one value an hour and longer.
WELL = {
    'aibrix_operator_leading{pod="a"}': "1x90",
    'aibrix_operator_leading{pod="b"}': "0x90",
    VIOLATIONS: "0x90",
    'aibrix_modelclaim_card_unreadable{namespace="ml",pod="warm-0"}': "0x90",
    'aibrix_modelclaim_waiting_claims{namespace="ml",reason="NotPlaced"}': "1x90",
    'aibrix_modelclaim_claims{namespace="ml",phase="Failed"}': "0x90",
    'aibrix_modelclaim_activation_total{namespace="ml",model="qwen",result="failed"}': "3x90",
    'aibrix_modelclaim_activation_total{namespace="ml",model="qwen",result="success"}': "0+1x90",
    f'{ACTIONS}{{namespace="ml",action="wake",result="applied"}}': "0+1x90",
    'aibrix_modelclaim_pool_policy_valid{namespace="ml",deployment="pool"}': "1x90",
    "aibrix_modelclaim_events_dropped": "7x90",
    f'{WRITES}{{kind="StormService",resource="pods",verb="create",result="done"}}': "0+9x90",
    f'{WARMUPS}{{namespace="ml",phase="Failed"}}': "0x90",
    GAVE_UP: "2x90",
    'aibrix:modelclaim_engine_restart_attempts_total{pod="warm-0",model="qwen"}': "5x90",
    'gateway_request_model_fail_total{model="qwen",status_code="503"}': "0+1x90",
    'gateway_request_model_fail_total{model="qwen",status_code="400"}': "0+60x90",
    'gateway_request_total{model="qwen"}': "0+100x90",
    f'{DECISIONS}{{model="qwen",le="0.005"}}': "0+100x90",
    f'{DECISIONS}{{model="qwen",le="+Inf"}}': "0+100x90",
    'aibrix_gateway_watch_silence_seconds{kind="pods"}': "45x90",
    'aibrix_gateway_redis_up{policy="local"}': "1x90",
    "aibrix_gateway_leases_expired_total": "40x90",
    "aibrix_statesync_last_success_timestamp_seconds": "0+60x90",
}

STORIES = (
    Story("AibrixNobodyLeads", {'aibrix_operator_leading{pod="a"}': "0x10"}, "5m",
          "No replica of aibrix-operator leads", {}),
    Story("AibrixNobodyLeads", {}, "5m", "No replica of aibrix-operator leads", {}),
    Story("AibrixSeveralLead", {f'aibrix_operator_leading{{pod="{pod}"}}': "1x10" for pod in "ab"}, "5m",
          "2 replicas of aibrix-operator lead at once", {}),
    Story("AibrixLedgerViolated", {VIOLATIONS: "0 0 0 1x20"}, "5m",
          "More memory was promised on a card of ml than it has", {"namespace": "ml"}),
    Story("AibrixLedgerViolated", {VIOLATIONS: "_x20 1x20"}, "25m",
          "More memory was promised on a card of ml than it has", {"namespace": "ml"}),
    Story("AibrixCardUnreadable", {'aibrix_modelclaim_card_unreadable{namespace="ml",pod="warm-0"}': "1x20"}, "10m",
          "The card of Pod ml/warm-0 is left alone, for it cannot be judged", POD),
    Story("AibrixClaimsWaitForRoom",
          {'aibrix_modelclaim_waiting_claims{namespace="ml",reason="NoMatchingPods"}': "2x60"}, "35m",
          "2 claim(s) of ml find no room on any card", {"namespace": "ml", "reason": "NoMatchingPods"}),
    *(
        Story("AibrixClaimsCannotBePlaced",
              {f'aibrix_modelclaim_waiting_claims{{namespace="ml",reason="{reason}"}}': "1x30"}, "15m",
              f"1 claim(s) of ml can never be placed: {reason}", {"namespace": "ml", "reason": reason})
        for reason in ("TooLargeForAnyCard", "InvalidPerGPU", "InvalidEngineConfig")
    ),
    Story("AibrixClaimsFailed", {'aibrix_modelclaim_claims{namespace="ml",phase="Failed"}': "1x20"}, "10m",
          "1 claim(s) of ml have failed", {"namespace": "ml"}),
    Story("AibrixStartsFail",
          {'aibrix_modelclaim_activation_total{namespace="ml",model="qwen",result="failed"}': "0+1x20"}, "10m",
          "Engines of qwen in ml do not start", MODEL),
    Story("AibrixWakesFail",
          {f'{ACTIONS}{{namespace="ml",action="wake",result="failed"}}': "0+1x20"}, "10m",
          "Sleeping engines of ml do not wake", {"namespace": "ml"}),
    Story("AibrixPoolPolicyInvalid",
          {'aibrix_modelclaim_pool_policy_valid{namespace="ml",deployment="pool"}': "0x20"}, "10m",
          "The policy of pool ml/pool cannot be read", {"namespace": "ml", "deployment": "pool"}),
    Story("AibrixEventsDropped", {"aibrix_modelclaim_events_dropped": "0+5x20"}, "10m",
          "Events are not written, to spare the API server", {}),
    Story("AibrixWritesRefused",
          {f'{WRITES}{{kind="StormService",resource="pods",verb="create",result="refused"}}': "0+1x30"},
          "20m", "The API server does not take what the controller of StormService writes to pods",
          {"kind": "StormService", "resource": "pods"}),
    Story("AibrixWarmupsFailed",
          {f'{WARMUPS}{{namespace="ml",phase="{phase}"}}': "1x20" for phase in ("Failed", "Degraded")}, "10m",
          "2 warmup(s) of ml have failed, on all of their nodes or on some", {"namespace": "ml"}),
    Story("AibrixEngineGaveUp", {GAVE_UP: "_x20 1x20"}, "25m",
          "The engine of qwen died too often and is not started again", {"pod": "warm-0", "model": "qwen"}),
    Story("AibrixEngineGaveUp", {GAVE_UP: "1x20 2x20"}, "25m",
          "The engine of qwen died too often and is not started again", {"pod": "warm-0", "model": "qwen"}),
    Story("AibrixEngineRestarts",
          {'aibrix:modelclaim_engine_restart_attempts_total{pod="warm-0",model="qwen"}': "0+1x60"}, "30m",
          "The engine of qwen dies again and again", {"pod": "warm-0", "model": "qwen"}),
    Story("AibrixRequestsFail",
          {'gateway_request_model_fail_total{model="qwen",status_code="503"}': "0+10x30",
           'gateway_request_total{model="qwen"}': "0+100x30"}, "15m",
          "10% of the requests for qwen fail", {"model": "qwen"}),
    Story("AibrixDecisionsSlow",
          {f'{DECISIONS}{{le="0.25"}}': "0x30", f'{DECISIONS}{{le="0.5"}}': "0+100x30",
           f'{DECISIONS}{{le="+Inf"}}': "0+100x30"}, "20m",
          "The gateway needs 497.5ms to decide one request in a hundred", {}),
    Story("AibrixGatewayHearsNothing", {'aibrix_gateway_watch_silence_seconds{kind="pods"}': "0+60x20"}, "10m",
          "A gateway has heard nothing of pods for 10m 0s", {"kind": "pods"}),
    Story("AibrixRedisLost", {'aibrix_gateway_redis_up{policy="local"}': "0x10"}, "5m",
          "A gateway does not reach its Redis; limits are local meanwhile", {"policy": "local"}),
    Story("AibrixRequestsUnaccounted", {"aibrix_gateway_leases_expired_total": "0+2x20"}, "15m",
          "Nobody told how 30 requests ended", {}),
    Story("AibrixStatesyncBehind", {"aibrix_statesync_last_success_timestamp_seconds": "60x20"}, "10m",
          "Gateways have shared nothing for 9m 0s", {}),
)  # fmt: skip


@pytest.fixture(scope="module")
def promtool():
    named = os.environ.get("AIBRIX_PROMTOOL") or shutil.which("promtool")
    if named is None:
        pytest.skip(
            "no promtool: install Prometheus (Debian: apt-get install prometheus), or name it in AIBRIX_PROMTOOL"
        )
    return named


def run(promtool, *arguments):
    told = subprocess.run([promtool, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def case(story):
    """promtool's test of a story: this alert fires, with these words."""
    rule = ALERTS[story.alert]
    expected = {
        "exp_labels": {**story.labels, **rule["labels"]},
        "exp_annotations": {**rule["annotations"], "summary": story.summary},
    }
    series = [{"series": name, "values": values} for name, values in story.series.items()]
    test = {"eval_time": story.at, "alertname": story.alert, "exp_alerts": [expected]}
    return {"name": story.alert, "interval": "1m", "input_series": series, "alert_rule_test": [test]}


def run_tests(promtool, folder, cases):
    (folder / RULES.name).write_text(RULES.read_text())
    tests = {"rule_files": [RULES.name], "evaluation_interval": "1m", "tests": cases}
    (folder / "tests.yaml").write_text(yaml.safe_dump(tests))
    run(promtool, "test", "rules", str(folder / "tests.yaml"))


def test_prometheus_accepts_the_rules(promtool):
    run(promtool, "check", "rules", str(RULES))


def test_each_alert_fires_when_it_should(promtool, tmp_path):
    run_tests(promtool, tmp_path, [case(story) for story in STORIES])


def test_a_story_that_fires_nothing_is_noticed(promtool, tmp_path):
    with pytest.raises(AssertionError, match="AibrixClaimsFailed"):
        run_tests(
            promtool, tmp_path, [case(Story("AibrixClaimsFailed", {}, "10m", "1 claim(s) of ml have failed", {}))]
        )


def test_no_alert_fires_where_all_is_well(promtool, tmp_path):
    series = [{"series": name, "values": values} for name, values in WELL.items()]
    tests = [{"eval_time": "85m", "alertname": name, "exp_alerts": []} for name in ALERTS]
    run_tests(promtool, tmp_path, [{"interval": "1m", "input_series": series, "alert_rule_test": tests}])


def test_every_alert_has_its_story_and_every_metric_of_it_is_documented():
    assert {story.alert for story in STORIES} == ALERTS.keys()
    page = PAGE.read_text()
    for name, rule in ALERTS.items():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), name
        assert rule["annotations"].keys() == {"summary", "description"}, name
        for metric in re.findall(r"\b(?:aibrix[_:]|gateway_)\w+", rule["expr"]):
            family = metric.removesuffix("_bucket")
            assert f"`{family}`" in page, f"{name} asks for {metric}, which docs/metrics.md does not know"


def test_the_page_lists_every_alert():
    lines = ["| Alert | Severity | After | Says |", "|---|---|---|---|"]
    for name, rule in ALERTS.items():
        says = re.sub(r"\{\{[^}]*\}\}", "…", rule["annotations"]["summary"])
        lines.append(f"| `{name}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} | {says} |")
    before, _, rest = PAGE.read_text().partition("<!-- alerts: written by a test -->")
    _, _, after = rest.partition("<!-- end of alerts -->")
    table = "\n".join(lines)
    wanted = f"{before}<!-- alerts: written by a test -->\n\n{table}\n\n<!-- end of alerts -->{after}"
    if os.environ.get("AIBRIX_WRITE_DOCS"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "AIBRIX_WRITE_DOCS=1 writes the table of docs/metrics.md anew"
