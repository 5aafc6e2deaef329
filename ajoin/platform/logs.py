"""The platform's own log: lines for people, or one JSON object a line for programs.

The keys of the JSON form are part of the interface and stay: `time` (UTC, milliseconds), `level`, `logger`, `thread`,
`message`; where they apply, `error` (class and text) with `traceback`, and the fields of `FIELDS` that the line is
about. A message is for people and may change its wording.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Any

FIELDS = ("epoch", "plan_version", "stream", "query", "method", "error_id", "state")
"""What a line can be about; given as `extra` to the logging call."""

TEXT = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        made: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        made |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[1] is not None:
            failure = record.exc_info[1]
            made["error"] = f"{type(failure).__name__}: {failure}"
            made["traceback"] = self.formatException(record.exc_info)
        return json.dumps(made, ensure_ascii=False, default=str)


def handler(format: str) -> logging.Handler:
    """To stderr, 'text' or 'json'."""
    made = logging.StreamHandler()
    made.setFormatter(JsonFormatter() if format == "json" else logging.Formatter(TEXT))
    return made
