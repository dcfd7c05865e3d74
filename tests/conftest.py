"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long one example takes says how busy the machine is, and nothing about the code: on two shared cores, a deadline fails
# tests at random. Whole tests have pytest's timeout.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
