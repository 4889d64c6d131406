"""Settings -> objects: the only importer of concrete engines and stores.

`Services` builds each object once, when it is first asked for. `ServiceFactory` and `WritePathFactory` are what travels
to deployments and actors. One module a role; each class builds on those that it needs:

    base -> stores  -> deletion ---------> ingestion -> services -> factories
         -> engines -> content ----------> ingestion
            stores, engines -------------> retrieval -> services

What takes long to import (Milvus's client, Arrow, engines) is imported where it is needed: `kb list` needs none of it.
"""

from rag_cluster.wiring.content import isolated_parser, parse_limits
from rag_cluster.wiring.engines import check_models
from rag_cluster.wiring.factories import ServiceFactory, WritePathFactory, local_services
from rag_cluster.wiring.services import Services

__all__ = [
    "ServiceFactory",
    "Services",
    "WritePathFactory",
    "check_models",
    "isolated_parser",
    "local_services",
    "parse_limits",
]
