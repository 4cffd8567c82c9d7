"""What every part of farpost agrees on: wire formats, errors, policy, settings, topics, tables."""
