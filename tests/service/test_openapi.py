"""/openapi.json promises what the service does: any request that can be made from it is answered as it says."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.problems import topics
from helpers.running import running, small_bandit

EXAMPLES = 10  # requests of each kind; `--max-examples 500` by hand takes minutes
TOKEN = "of-somebody-who-may-do-it-all"


def test_schemathesis_finds_nothing(tmp_path: Path) -> None:
    """No 5xx, no undocumented status or body, nothing without a token, nothing taken that the schema forbids.

    The one check left out wants everything that the schema allows to be taken: it cannot know which arms there are.
    """
    command = Path(sys.executable).parent / "schemathesis"
    if not command.exists():
        pytest.skip("schemathesis is not installed")
    folder = small_bandit(tmp_path / "shop", *topics())
    with running(folder, token=TOKEN, environment={"TREETOP_TOKEN": TOKEN}) as service:
        with service.client() as client:
            client.decide({"f1": 1.0}, event_id="x")
        words = [
            str(command),
            "run",
            f"{service.url}/openapi.json",
            "--header",
            f"Authorization: Bearer {TOKEN}",
            "--max-examples",
            str(EXAMPLES),
            "--phases",
            "examples,coverage,fuzzing",
            "--checks",
            "all",
            "--exclude-checks",
            "positive_data_acceptance",
            "--request-timeout",
            "60",  # a refit that is waited for, on a busy machine
            "--no-color",
            "--seed",
            "1",
            "--request-timeout",
            "120",  # a refit that is waited for, on a busy machine
        ]
        found = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, timeout=600)
        assert found.returncode == 0, found.stdout[-6000:] + found.stderr[-2000:]
        assert "Tested: 20" in found.stdout
        assert [line for line in service.said() if line["level"] == "error"] == []
