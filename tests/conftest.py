"""Settings for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How fast a busy machine is says nothing about a test.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
