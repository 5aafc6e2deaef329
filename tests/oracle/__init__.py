"""The oracle: what every query of a scenario must deliver, computed the slow and obvious way."""

from tests.oracle.compare import check, check_report, rows_by_query
from tests.oracle.oracle import Expected, ExpectedQuery, ExpectedStream, run_oracle
from tests.oracle.rows import freeze, thaw

__all__ = [
    "Expected",
    "ExpectedQuery",
    "ExpectedStream",
    "check",
    "check_report",
    "freeze",
    "rows_by_query",
    "run_oracle",
    "thaw",
]
