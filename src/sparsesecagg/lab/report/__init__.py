"""Reports: what a training run came to, as a page to open and as a table in the terminal.

records    the run folder, read into frozen types
measures   the figures everything else shares: accuracy, bytes per user, time, SecAgg's cost
words      figures as people read them
markup     HTML that escapes by construction
palette    colours, light and dark
plots/     the plots, as Plotly JSON
seeds      how much of a difference may be chance
headline   what came out, in plain words
sections   the tables and lists of the page
page       the page itself: `write_report`
table      the terminal's closing table: `summary_table`
"""

from sparsesecagg.lab.report.page import compare_runs, write_report
from sparsesecagg.lab.report.records import LabelCounts, RoundLine, Run, RunSet, read_run, read_run_set, read_runs
from sparsesecagg.lab.report.table import summary_table

__all__ = [
    "LabelCounts",
    "RoundLine",
    "Run",
    "RunSet",
    "compare_runs",
    "read_run",
    "read_run_set",
    "read_runs",
    "summary_table",
    "write_report",
]
