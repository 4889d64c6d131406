"""Questions with known answers -> figures."""
