"""Reports: what a training run came to, as a page to open and as a table in the terminal.

records    the run folder: what a round's line is, and reading
measures   the figures everything else shares: accuracy, bytes per user, time, SecAgg's cost, spread over seeds
results    the figures as people read them: a table for terminal, page, Markdown, LaTeX and CSV, and the headline
plots      the plots, as Plotly figures, and as PDF for papers
page       the page itself: `write_report`
"""

from sparsesecagg.lab.learning.aggregation import RoundLine
from sparsesecagg.lab.report.page import write_report
from sparsesecagg.lab.report.records import LabelCounts, Run, read_folder, read_run, read_runs
from sparsesecagg.lab.report.results import summary_table

__all__ = ["LabelCounts", "RoundLine", "Run", "read_folder", "read_run", "read_runs", "summary_table", "write_report"]
