"""The Ray Serve application: ingress, embedder and upload worker; HTTP under /v1."""
