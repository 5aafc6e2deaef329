"""Windows over arrays: which slice and which windows event times belong to.

One module per kind of window, built from the value a query holds (optimizer.model.windows). Operators go through
registry.py and know no kind; kernels know integers and arrays only.

To add a kind: its value in optimizer/model/windows, its logic here (see `WindowLogic` in base.py), one line in
registry.py, and the parser that makes it. A plug-in does the same from outside (plugins.py).
"""
