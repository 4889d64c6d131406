"""Settings -> objects."""
