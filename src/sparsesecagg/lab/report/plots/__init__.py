"""The plots of a report, as Plotly JSON built without importing Plotly.

base      what a plot is, and the pieces all of them share
learning  accuracy and loss, by round and by megabyte
cost      bytes and seconds, by stage
people    contributors per coordinate, dropouts per round
labels    who holds which classes
"""

from sparsesecagg.lab.report.plots.base import Figure, FigureView, Series, as_json, levelled, series_of
from sparsesecagg.lab.report.plots.cost import (
    bytes_received,
    bytes_sent,
    client_seconds,
    computing_and_transfer,
    server_seconds,
)
from sparsesecagg.lab.report.plots.labels import label_distribution
from sparsesecagg.lab.report.plots.learning import accuracy_by_megabyte, accuracy_by_round, loss_by_round
from sparsesecagg.lab.report.plots.people import contributors, dropouts

__all__ = [
    "Figure",
    "FigureView",
    "Series",
    "accuracy_by_megabyte",
    "accuracy_by_round",
    "as_json",
    "bytes_received",
    "bytes_sent",
    "client_seconds",
    "computing_and_transfer",
    "contributors",
    "dropouts",
    "label_distribution",
    "levelled",
    "loss_by_round",
    "series_of",
    "server_seconds",
]
