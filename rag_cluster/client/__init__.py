"""The client of a cluster, for notebooks and programs; without arguments it is the cluster itself, in this process."""

from rag_cluster.client.cluster import RagCluster
from rag_cluster.client.jobs import Cluster, Job

__all__ = ["Cluster", "Job", "RagCluster"]
