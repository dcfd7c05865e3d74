"""What an HTTP status says of an engine, where more than one says the same."""

from __future__ import annotations

NO_ENDPOINT = frozenset({404, 405, 501})
"""There is no such endpoint. Which of them comes depends on the framework and on the proxy before it: where the path belongs to a
catch-all route of another method it is 405 (method not allowed), and a server that knows GET and POST alone says 501."""
