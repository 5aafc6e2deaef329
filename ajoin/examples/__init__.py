"""Plug-ins to use and to copy: `ajoin serve --plugin ajoin.examples.geo_mean`.

geo_mean           an aggregate function: GEO_MEAN(x)
calendar_windows   windows of different lengths: WINDOW CALENDAR (MONTH, 'Europe/Berlin')
"""
