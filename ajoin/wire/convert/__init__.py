"""Between messages and values: every conversion of the API, once, for the server and both clients.

Values are the frozen dataclasses of runtime.api, so the CLI prints the same thing whether it talks to a server or to an
embedded platform. `x_to_pb` and `x_from_pb` are inverses, except that a message may hold what no value can (an unknown
enum number, a missing spec); then `x_from_pb` raises InvalidRequest. One module for each .proto file.
"""

from ajoin.wire.convert.admin import (
    setting_from_pb,
    setting_to_pb,
    statistics_from_pb,
    statistics_to_pb,
    status_from_pb,
    status_to_pb,
)
from ajoin.wire.convert.fields import enum_name
from ajoin.wire.convert.plan import (
    optimization_from_pb,
    optimization_to_pb,
    order_from_pb,
    order_to_pb,
    plan_event_from_pb,
    plan_event_to_pb,
)
from ajoin.wire.convert.queries import (
    budget_from_pb,
    budget_to_pb,
    incomplete_to_pb,
    query_from_pb,
    query_state_from_pb,
    query_state_to_pb,
    query_to_pb,
    result_schema_from_pb,
)
from ajoin.wire.convert.results import cursor_from_pb, cursor_to_pb, item_from_pb, table_to_ipc
from ajoin.wire.convert.streams import (
    connector_from_pb,
    connector_to_pb,
    dead_letter_from_pb,
    dead_letter_to_pb,
    schema_from_pb,
    schema_to_pb,
    stream_from_pb,
    stream_to_pb,
)

__all__ = [
    "budget_from_pb",
    "budget_to_pb",
    "connector_from_pb",
    "connector_to_pb",
    "cursor_from_pb",
    "cursor_to_pb",
    "dead_letter_from_pb",
    "dead_letter_to_pb",
    "enum_name",
    "incomplete_to_pb",
    "item_from_pb",
    "optimization_from_pb",
    "optimization_to_pb",
    "order_from_pb",
    "order_to_pb",
    "plan_event_from_pb",
    "plan_event_to_pb",
    "query_from_pb",
    "query_state_from_pb",
    "query_state_to_pb",
    "query_to_pb",
    "result_schema_from_pb",
    "schema_from_pb",
    "schema_to_pb",
    "setting_from_pb",
    "setting_to_pb",
    "statistics_from_pb",
    "statistics_to_pb",
    "status_from_pb",
    "status_to_pb",
    "stream_from_pb",
    "stream_to_pb",
    "table_to_ipc",
]
