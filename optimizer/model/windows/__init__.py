"""Windows as values: what a query says about time, in plain integers (milliseconds since the Unix epoch).

One module per kind of window; `Window` (base.py) is what the rest may ask of any of them. What tasks do with arrays of
event times is built from these values in runtime.windows, where every kind is registered.
"""

from optimizer.model.windows.base import Window
from optimizer.model.windows.periodic import PeriodicWindow

__all__ = ["PeriodicWindow", "Window"]
