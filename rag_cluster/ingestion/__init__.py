"""The write path: plan, steps (plain functions), the Ray Data pipeline, and the upload worker's loop."""
