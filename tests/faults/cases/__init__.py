"""All faults, by what is broken. Importing this declares them."""

from . import clean, commit_confirm, console, engine, files, journal, link, manager, rights

__all__ = ["clean", "commit_confirm", "console", "engine", "files", "journal", "link", "manager", "rights"]
