"""serve_config.yaml, serve_config.gpu.yaml and cluster.yaml, as Ray itself reads them; no cloud, no GPU."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private import commands
from ray.autoscaler._private.resource_demand_scheduler import (
    NodeAvailabilitySummary,
    _default_utilization_scorer,
    get_nodes_for,
)
from ray.autoscaler._private.util import prepare_config
from ray.serve.schema import ServeDeploySchema

from rag_cluster.serving.app import AppConfig, build
from rag_cluster.serving.models import EmbedderLimits
from rag_cluster.settings import Settings

ROOT = Path(__file__).parents[2]
MODELS = {"EmbedderDeployment", "RerankerDeployment", "GeneratorDeployment"}
OTHERS = {"IngressDeployment", "UploadWorkerDeployment"}


def config(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return loaded


def deployments(name: str) -> dict[str, dict[str, Any]]:
    (application,) = config(name)["applications"]
    return {one["name"]: one for one in application["deployments"]}


@pytest.mark.parametrize("name", ["serve_config.yaml", "serve_config.gpu.yaml"])
def test_serve_reads_the_configuration(name: str) -> None:
    read = ServeDeploySchema.model_validate(config(name))
    (application,) = read.applications
    assert application.import_path == "rag_cluster.serving.app:build"
    AppConfig.model_validate(application.args)
    assert set(deployments(name)) == (OTHERS | MODELS if "gpu" in name else OTHERS | {"EmbedderDeployment"})


def test_a_reranker_is_deployed_where_the_settings_name_one(tmp_path: Path) -> None:
    names = []
    for reranker in ("none", "overlap"):
        settings = {"data_dir": str(tmp_path), "embedder": "hash:64", "reranker": reranker, "embedder_gpus": 0.5}
        application = build(AppConfig(settings=settings))
        bound = [*application._bound_deployment.init_args]
        names.append({one._bound_deployment.name for one in bound if hasattr(one, "_bound_deployment")})
        embedder = bound[1]._bound_deployment
        assert embedder.ray_actor_options == {"num_cpus": 0, "num_gpus": 0.5}
    assert names[0] == {"EmbedderDeployment", "UploadWorkerDeployment"}
    assert names[1] == names[0] | {"RerankerDeployment"}


def test_the_ingress_that_goes_lets_every_answer_reach_its_deadline(tmp_path: Path) -> None:
    settings = {"data_dir": str(tmp_path), "embedder": "hash:64", "request_timeout": 240.0}
    ingress = build(AppConfig(settings=settings))._bound_deployment
    assert ingress._deployment_config.graceful_shutdown_timeout_s == 255
    by_file = deployments("serve_config.gpu.yaml")["IngressDeployment"]["graceful_shutdown_timeout_s"]
    assert by_file >= Settings().request_timeout + 15


def test_the_gpu_configuration_states_limits_and_gpus_of_every_model() -> None:
    for name, options in deployments("serve_config.gpu.yaml").items():
        asked = options["ray_actor_options"]
        if name in MODELS:
            assert asked["num_cpus"] == 0 and asked["num_gpus"] > 0
            assert options["max_queued_requests"] > 0 and options["autoscaling_config"]["min_replicas"] == 1
            scale = options["autoscaling_config"]
            assert scale["target_ongoing_requests"] < options["max_ongoing_requests"], "else nothing scales up"
        else:
            assert asked["num_cpus"] >= 1 and "num_gpus" not in asked
    EmbedderLimits(**deployments("serve_config.gpu.yaml")["EmbedderDeployment"]["user_config"])


class Cloud:
    """The provider that `ray up` is given in the place of AWS: no network, so nothing can be asked."""

    @staticmethod
    def fillout_available_node_types_resources(config: dict[str, Any]) -> dict[str, Any]:
        raise ConnectionError("no network")

    @staticmethod
    def bootstrap_config(config: dict[str, Any]) -> dict[str, Any]:
        return config


def test_ray_up_accepts_the_cluster_without_asking_the_cloud_for_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(commands._NODE_PROVIDERS, "aws", lambda provider: Cloud)
    monkeypatch.setattr(commands, "try_get_log_state", lambda provider: None)
    read = commands._bootstrap_config(config("cluster.yaml"), no_config_cache=True)
    types = read["available_node_types"]
    assert types["head"]["resources"] == {"CPU": 0} and types["head"]["max_workers"] == 0
    for name in ("cpu_worker", "gpu_worker"):
        assert types[name]["min_workers"] <= types[name]["max_workers"] <= read["max_workers"]
    broken = copy.deepcopy(config("cluster.yaml"))
    broken["available_node_types"]["cpu_worker"]["min_workers"] = 100
    with pytest.raises(ValueError, match="max_workers"):
        commands._bootstrap_config(broken, no_config_cache=True)


def wanted(demands: list[dict[str, float]]) -> dict[str, int]:
    """Nodes that Ray's autoscaler would start for these demands, beside a head."""
    read = prepare_config(config("cluster.yaml"))

    def score(resources: Any, demands: Any, node_type: str) -> Any:
        summary = NodeAvailabilitySummary(node_availabilities={})
        return _default_utilization_scorer(resources, demands, node_type, node_availability_summary=summary)

    nodes, unfulfilled = get_nodes_for(
        read["available_node_types"], {"head": 1}, "head", read["max_workers"], demands, score
    )
    assert not unfulfilled
    return dict(nodes)


def asked(name: str) -> dict[str, float]:
    options = deployments("serve_config.gpu.yaml")[name]["ray_actor_options"]
    named = {"CPU": options.get("num_cpus", 0), "GPU": options.get("num_gpus", 0)}
    return {resource: amount for resource, amount in named.items() if amount}


def test_each_deployment_brings_up_the_workers_it_is_meant_for() -> None:
    for name in OTHERS:
        assert wanted([asked(name)]) == {"cpu_worker": 1}, name
    for name in MODELS:
        assert wanted([asked(name)]) == {"gpu_worker": 1}, name
    together = [asked(name) for name in (*sorted(OTHERS), *sorted(MODELS))]
    assert wanted(together) == {"cpu_worker": 1, "gpu_worker": 2}, "embedder and reranker share a GPU"


def test_every_replica_that_autoscaling_may_ask_for_finds_a_place() -> None:
    demands = []
    for name, options in deployments("serve_config.gpu.yaml").items():
        replicas = options.get("autoscaling_config", {}).get("max_replicas", 1)
        demands += [asked(name)] * replicas
    nodes = wanted(demands)
    assert nodes["gpu_worker"] <= config("cluster.yaml")["available_node_types"]["gpu_worker"]["max_workers"]
