"""Reports: what a training run came to, as a page to open and as a table in the terminal.

records    the run folder: what a round's line is, and reading
measures   the figures everything else shares: accuracy, bytes per user, time, SecAgg's cost, spread over seeds
words      figures as people read them
markup     HTML that escapes by construction
palette    colours of runs
plots      the plots, as Plotly figures
headline   what came out, in plain words
page       the page itself: `write_report`
table      what is compared, for terminal, page, Markdown, LaTeX and CSV
pictures   PDF figures
"""

from sparsesecagg.lab.learning.metrics import RoundLine
from sparsesecagg.lab.report.page import write_report
from sparsesecagg.lab.report.records import LabelCounts, Run, read_folder, read_run, read_runs
from sparsesecagg.lab.report.table import summary_table

__all__ = [
    "LabelCounts",
    "RoundLine",
    "Run",
    "read_folder",
    "read_run",
    "read_runs",
    "summary_table",
    "write_report",
]
