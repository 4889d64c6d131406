"""Run by test_ray_job: a Ray with its dashboard, until standard input ends. Prints the dashboard's address.

Ray has two places of which a machine has one each, and by which jobs would go to another Ray that runs beside it.
"""

from __future__ import annotations

import sys
import tempfile
from typing import Any

import ray
from ray._private import parameter, utils


def main(port: int, agent_port: int) -> None:
    """One line on standard output as soon as jobs can be submitted."""

    class Params(parameter.RayParams):
        """The port of the agent that starts jobs: `ray start` has an option for it, `ray.init` has none."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **{**options, "dashboard_agent_listen_port": agent_port})

    parameter.RayParams = Params  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        context = ray.init(
            address="local",
            num_cpus=3,
            include_dashboard=True,
            dashboard_port=port,
            log_to_driver=False,
            _temp_dir=folder,
        )
        # What `ray start` writes. Without it a job joins any Ray whose process it finds.
        utils.write_ray_address(ray.get_runtime_context().gcs_address, folder)
        print(f"http://{context.dashboard_url}", flush=True)
        sys.stdin.read()
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
