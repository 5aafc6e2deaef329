"""Windows as values: what a query says about time, in plain integers (milliseconds since the Unix epoch).

One module per kind of window; `Window` (base.py) is what the rest may ask of any of them. Aligned windows are known
from the clock alone: tumbling and hopping (periodic.py), one fixed range (fixed.py), and what plug-ins bring, for which
consecutive.py is a start. Where the others begin and end follows from the tuples: sessions, count and punctuated
windows (by_data.py). A query over one stream may have none (unwindowed.py). What tasks do with arrays of event times is
built from these values in runtime.windows, where every kind is registered.
"""

from optimizer.model.windows.base import AlignedWindow, Window, is_aligned
from optimizer.model.windows.by_data import CountWindow, PunctuatedWindow, SessionWindow
from optimizer.model.windows.consecutive import ConsecutiveWindow
from optimizer.model.windows.fixed import FixedWindow
from optimizer.model.windows.periodic import PeriodicWindow
from optimizer.model.windows.unwindowed import Unwindowed

__all__ = [
    "AlignedWindow",
    "ConsecutiveWindow",
    "CountWindow",
    "FixedWindow",
    "PeriodicWindow",
    "PunctuatedWindow",
    "SessionWindow",
    "Unwindowed",
    "Window",
    "is_aligned",
]
