"""Prompt suites that come with the console, one TOML file each."""
