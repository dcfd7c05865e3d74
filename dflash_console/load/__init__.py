"""Firing prompts at a server and measuring what comes back: requests, streams, per-request records, prompt suites."""
