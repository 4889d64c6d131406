"""Run by test_gpu_cluster: Ray nodes on this machine with the resources of cluster.yaml (their GPUs are names only),
serve_config.gpu.yaml on them with engines that need none, and two ingestion jobs. Prints where everything ran."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import httpx
import ray
import yaml
from ray import serve
from ray._private.state import actors
from ray.cluster_utils import Cluster
from ray.serve.context import _get_global_client
from ray.serve.schema import ServeDeploySchema

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.serving.bulk import ServedWritePathFactory
from rag_cluster.serving.proxy import MIDDLEWARES, PROXY_CALLBACK
from rag_cluster.settings import Settings
from rag_cluster.wiring import WritePathFactory, local_services
from tests.serving.replicas import until

ROOT = Path(__file__).parents[2]
ENGINES = {"embedder": "hash:64", "reranker": "overlap", "generator": "extractive"}


def start_nodes() -> Cluster:
    """A head, one CPU worker and two GPU workers."""
    types = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))["available_node_types"]
    head, cpu, gpu = (types[name]["resources"] for name in ("head", "cpu_worker", "gpu_worker"))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": head["CPU"], "include_dashboard": False})
    for resources in (cpu, gpu, gpu):
        cluster.add_node(num_cpus=resources["CPU"], num_gpus=resources.get("GPU", 0))
    ray.init(address=cluster.address, log_to_driver=False)
    return cluster


def deploy(settings: Settings) -> str:
    """serve_config.gpu.yaml, but for its engines; the endpoint."""
    read = yaml.safe_load((ROOT / "serve_config.gpu.yaml").read_text(encoding="utf-8"))
    (application,) = read["applications"]
    application["args"]["settings"] |= {**ENGINES, "data_dir": str(settings.data_dir), "ocr": "off"}
    application["deployments"] = [one for one in application["deployments"] if one["name"] != "GeneratorDeployment"]
    http = read["http_options"] | {"host": "127.0.0.1", "port": settings.port}
    serve.start(proxy_location=read["proxy_location"], http_options=http)
    _get_global_client().deploy_apps(ServeDeploySchema.model_validate({**read, "http_options": http}))
    until(lambda: serve.status().applications["rag"].status == "RUNNING")
    return f"http://127.0.0.1:{settings.port}"


def places() -> dict[str, list[list[str]]]:
    """Class of each actor so far -> the kind of node it ran on, with the GPUs it saw, if it is a replica that lives."""
    resources = {node["NodeID"]: node["Resources"] for node in ray.nodes()}
    kinds = {node: "gpu" if has.get("GPU") else "cpu" if has.get("CPU") else "head" for node, has in resources.items()}
    found: dict[str, list[list[str]]] = {}
    for actor in actors().values():
        name = str(actor["ActorClassName"]).rpartition(":")[2]
        sees = visible_gpus(actor["Name"]) if actor["Name"].startswith("SERVE_REPLICA") else ""
        found.setdefault(name, []).append([kinds.get(actor["Address"]["NodeID"], "?"), sees])
    return found


def visible_gpus(replica: str) -> str:
    """CUDA_VISIBLE_DEVICES in that replica's process."""
    handle = ray.get_actor(replica, namespace="serve")
    return str(ray.get(handle.__ray_call__.remote(lambda self: os.environ.get("CUDA_VISIBLE_DEVICES", "unset"))))


def main(home: Path, port: int) -> None:
    """Prints one JSON line."""
    for name in ("own", "served"):
        (home / name).mkdir()
        (home / name / "note.txt").write_text(f"The {name} crane lifts 40 tonnes.\n" * 5, encoding="utf-8")
    own = {"index_gpus": 0.25, "index_cpus": 0.0}
    settings = Settings(data_dir=home / "data", ocr="off", port=port, **ENGINES, **own)
    os.environ[PROXY_CALLBACK] = MIDDLEWARES
    services = local_services(settings)
    services.ensure_knowledge_base("cranes")
    cluster = start_nodes()
    outcome: dict[str, Any] = {}
    try:
        endpoint = deploy(settings)
        options = IngestionOptions(AccessAttributes(()), progress=False)
        factories = {
            "own": WritePathFactory(settings),
            "served": ServedWritePathFactory(settings.model_copy(update={"index_gpus": 0.0, "index_cpus": 0.5})),
        }
        for name, factory in factories.items():
            report = run_ingestion(factory, "cranes", [str(home / name)], options)
            outcome[name] = dict(report.outcomes)
        ask = {"knowledge_base": "cranes", "query": "Which crane lifts 40 tonnes?"}
        answer = httpx.post(f"{endpoint}/v1/retrieve", json=ask, timeout=120).json()
        models = httpx.get(f"{endpoint}/v1/models", timeout=60).json()["models"]
        outcome |= {"answer": answer, "models": models, "places": places()}
    finally:
        serve.shutdown()
        ray.shutdown()
        cluster.shutdown()
        services.stop_embedded_stores()
    sys.stdout.write(json.dumps(outcome) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
