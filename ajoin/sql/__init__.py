"""SQL front end: `parse_query` binds a statement to the known streams, or says exactly what is wrong; `admit` also
holds it against limits."""

from __future__ import annotations

from ajoin.sql.admission import QueryLimits, admit
from ajoin.sql.parse import MAX_SQL_LENGTH, parse_query
from ajoin.sql.places import at_window
from ajoin.sql.reasons import Reason

__all__ = ["MAX_SQL_LENGTH", "QueryLimits", "Reason", "admit", "at_window", "parse_query"]
