"""SQL front end: `parse_query` binds a statement to the known streams, or says exactly what is wrong."""

from __future__ import annotations

from ajoin.sql.parse import MAX_SQL_LENGTH, parse_query
from ajoin.sql.reasons import Reason

__all__ = ["MAX_SQL_LENGTH", "Reason", "parse_query"]
