"""An Airflow 3 DAG of job 2: each exit code of `tokenmill tokenize` becomes the state of a task that it means.

0 succeeds. 3 (nothing to do) and 4 (another run is at work) skip, and with it what would read new shards. 2 (bad input)
fails without another try. Anything else fails and is tried again, which takes the work up where it stopped.

Copy to Airflow's folder of DAGs. The variables TOKENMILL and TOKENMILL_CONFIG of the environment name the command and
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
    @task
    def tokenize() -> dict[str, Any]:
        """Returns the line of JSON about the run."""
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
        """Stands for what goes on with the shards."""
        print(f"{about['output']}: {about['counts']['tokens']:,} tokens")

    announce(tokenize())


tokenmill()
