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
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        line |= {name: vars(record)[name] for name in FIELDS if name in vars(record)}
        if record.exc_info and record.exc_info[1] is not None:
            failure = record.exc_info[1]
            line["error"] = f"{type(failure).__name__}: {failure}"
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def handler(format: str) -> logging.Handler:
    """To stderr, 'text' or 'json'."""
    stream = logging.StreamHandler()
    stream.setFormatter(JsonFormatter() if format == "json" else logging.Formatter(TEXT))
    return stream
