"""Run by test_two_cpus: a Ray of two CPUs, the Serve application and a bulk ingest on it at the same time."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import httpx
import ray
from ray import serve

from rag_cluster.domain.access import AccessAttributes
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from rag_cluster.serving.app import start
from rag_cluster.settings import Settings
from rag_cluster.wiring import WritePathFactory, local_services


def main(home: Path, port: int) -> None:
    """Prints one JSON line: what the ingest did and how many queries were answered while it ran."""
    documents = home / "documents"
    documents.mkdir()
    for number in range(40):
        text = f"Buoy {number} lies {number * 7 + 3} metres east of the pier.\n" * 20
        (documents / f"buoy{number}.txt").write_text(text, encoding="utf-8")
    settings = Settings(data_dir=home / "data", embedder="hash:64", ocr="off", port=port)
    services = local_services(settings)
    services.ensure_knowledge_base("buoys")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    endpoint = start(settings)
    answered, failed, stop = [], [], threading.Event()

    def ask() -> None:
        while not stop.is_set():
            body = {"knowledge_base": "buoys", "query": "buoy 7"}
            response = httpx.post(f"{endpoint}/v1/retrieve", json=body, timeout=60)
            (answered if response.status_code == 200 else failed).append(response.status_code)
            time.sleep(0.05)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        report = run_ingestion(
            WritePathFactory(settings),
            "buoys",
            [str(documents)],
            IngestionOptions(AccessAttributes(()), progress=False),
        )
    finally:
        stop.set()
        asking.join()
    found = httpx.post(
        f"{endpoint}/v1/retrieve", json={"knowledge_base": "buoys", "query": "How far east lies buoy 7?"}, timeout=60
    ).json()["results"][0]["matched_content"]
    serve.shutdown()
    ray.shutdown()
    services.stop_embedded_stores()
    result = {"ok": report.ok, "outcomes": dict(report.outcomes), "answered": len(answered), "failed": failed}
    sys.stdout.write(json.dumps({**result, "found": found}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
