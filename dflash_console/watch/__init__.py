"""Polling and following one service, and publishing what is known of it as immutable snapshots."""

from .watcher import Watcher

__all__ = ["Watcher"]
