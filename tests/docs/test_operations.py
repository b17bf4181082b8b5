"""What docs/operations.md and the files in packaging/ say of metrics, alerts and log lines is what the service has."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.running import PLAIN, Running
from helpers.snippets import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text()
RULES = ROOT / "packaging" / "prometheus" / "alerts.yml"
RULE_TESTS = RULES.with_name("alerts_test.yml")
DASHBOARD: dict[str, Any] = json.loads((ROOT / "packaging" / "grafana" / "treetop.json").read_text())
METRIC = re.compile(r"\btreetop_\w+")
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")


@pytest.fixture(scope="module")
def exposed(shop: Running) -> set[str]:
    """The metrics of a real service."""
    text = shop.get("/metrics").content.decode()
    return set(re.findall(r"^# TYPE (treetop_\w+)", text, re.MULTILINE))


def named(text: str) -> set[str]:
    """The metrics that a text names; a histogram's parts are the histogram."""
    return {re.sub(r"(?<=_seconds)_(bucket|sum|count)$", "", name) for name in METRIC.findall(text)}


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def first_cells(title: str) -> list[str]:
    return [line.split("|")[1] for line in section(title).splitlines() if line.startswith("| ")]


def test_every_metric_has_its_line(exposed: set[str]) -> None:
    assert {name for cell in first_cells("Reading the metrics") for name in named(cell)} == exposed


def test_alerts_and_dashboard_use_metrics_that_there_are(exposed: set[str]) -> None:
    for text in (RULES.read_text(), RULE_TESTS.read_text(), json.dumps(DASHBOARD)):
        used = named(text)
        assert used
        assert used <= exposed


def test_the_dashboard_shows_every_metric(exposed: set[str]) -> None:
    assert named(json.dumps(DASHBOARD)) == exposed


def test_every_alert_has_its_line() -> None:
    alerts = re.findall(r"alert: (\w+)", RULES.read_text())
    assert alerts == re.findall(r"alert `(\w+)`", "\n".join(first_cells("What to do when")))
    assert set(alerts) == set(re.findall(r"alertname: (\w+)", RULE_TESTS.read_text()))


GOOD = ("", "logging.INFO", "'info'")


def log_events() -> Iterator[str]:
    """The events that the service logs as a warning or an error, or may so log."""
    for path in sorted((ROOT / "src" / "treetop").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).rpartition(".")[2]
                level = ast.unparse(node.args[1]) if len(node.args) > 1 else ""
                if called == "log_error" or (called in ("log_event", "say") and level not in GOOD):
                    values = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
                    yield from (value for value in values if isinstance(value, str))


def test_every_bad_event_of_the_log_has_its_line() -> None:
    events, cells = set(log_events()), "\n".join(first_cells("What to do when"))
    assert len(events) > 5
    assert not {event for event in events if f"`{event}`" not in cells}


def run_promtool(*words: str) -> None:
    ended = subprocess.run(["promtool", *words], capture_output=True, text=True, env=PLAIN, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@promtool
def test_the_rules_load_and_fire() -> None:
    run_promtool("check", "rules", str(RULES))
    run_promtool("test", "rules", str(RULE_TESTS))


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@promtool
def test_the_expressions_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    found = [target["expr"] for panel in panels() for target in panel["targets"]]
    assert len(found) > 15
    rules = [{"record": f"a:b{i}", "expr": filled(expr)} for i, expr in enumerate(found)]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    run_promtool("check", "rules", str(file))


def filled(expr: str) -> str:
    """An expression as Grafana sends it."""
    return expr.replace("$__rate_interval", "5m").replace("$instance", ".*")


def test_the_dashboard_is_one_that_loads() -> None:
    """Unique ids and letters, places that do not overlap, a data source that is asked for when it is imported."""
    everything = DASHBOARD["panels"]
    assert len({panel["id"] for panel in everything}) == len(everything)
    assert {variable["name"]: variable["type"] for variable in DASHBOARD["templating"]["list"]} == {
        "datasource": "datasource",
        "instance": "query",
    }
    taken: set[tuple[int, int]] = set()
    for panel in everything:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    for panel in panels():
        source = {"type": "prometheus", "uid": "${datasource}"}
        assert panel["datasource"] == source, panel["title"]
        assert all(target["datasource"] == source and target["expr"] for target in panel["targets"]), panel["title"]
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0, panel["title"]
