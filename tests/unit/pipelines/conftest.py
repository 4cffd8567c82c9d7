"""A slow machine is no failure: what a property costs is not part of it."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
