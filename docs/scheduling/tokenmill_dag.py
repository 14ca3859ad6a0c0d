"""An Airflow 3 DAG that runs job 2 every hour and maps the exit codes of `tokenmill tokenize` to task states.

0 is a success. 3 (nothing to do) and 4 (another run is working) skip the task and everything after it. 2 (bad input)
fails without a retry. Any other code fails and is retried; the retry continues from where the run stopped.

Copy this file to Airflow's DAG folder. The environment variables TOKENMILL and TOKENMILL_CONFIG name the command and
the project file.
"""

import json
import os
import subprocess
from datetime import timedelta
from typing import Any

import pendulum
from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

COMMAND = os.environ.get("TOKENMILL", "tokenmill")
CONFIG = os.environ.get("TOKENMILL_CONFIG", "/etc/tokenmill/project.yaml")


@dag(
    dag_id="tokenmill",
    schedule="@hourly",
    start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
)
def tokenmill() -> None:
    """Tokenizes what is new in the corpus, then announces the result."""

    @task
    def tokenize() -> dict[str, Any]:
        """Runs job 2 and returns what its `--log-json` line says about the run."""
        command = [COMMAND, "tokenize", "--config", CONFIG, "--log-json", "--run.progress", "false"]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(run.stdout)
        if run.returncode in (3, 4):
            raise AirflowSkipException(f"tokenmill ended with {run.returncode}")
        if run.returncode == 2:
            raise AirflowFailException("tokenmill: bad input, see the log above")
        run.check_returncode()
        return dict(json.loads(run.stdout))

    @task
    def announce(about: dict[str, Any]) -> None:
        """Placeholder for the task that uses the new shards."""
        print(f"{about['output']}: {about['counts']['tokens']:,} tokens")

    announce(tokenize())


tokenmill()
