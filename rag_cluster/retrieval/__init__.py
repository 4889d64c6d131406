"""Query -> evidence: access, search, fusion, second check, expansion, each stage with its trace."""
