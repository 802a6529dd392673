"""What a file or another engine cannot hold."""

from __future__ import annotations


class NotExportable(ValueError):
    """A model that a file or an export has no form for; the message is why, and what to do."""
