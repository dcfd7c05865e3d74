"""All faults, by what is broken. Importing this declares them."""

from . import clean, console, engine, files, journal, link, manager, rights

__all__ = ["clean", "console", "engine", "files", "journal", "link", "manager", "rights"]
