"""Run by test_ray_job: a Ray with its dashboard, until standard input ends. Prints the dashboard's address."""

from __future__ import annotations

import sys

import ray


def main(port: int) -> None:
    """One line on standard output as soon as jobs can be submitted."""
    context = ray.init(address="local", num_cpus=3, include_dashboard=True, dashboard_port=port, log_to_driver=False)
    print(f"http://{context.dashboard_url}", flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
