"""Text -> vectors, scores and answers: one module per engine, fakes beside reals."""
