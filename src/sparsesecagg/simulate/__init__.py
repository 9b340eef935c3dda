"""The protocol in one process: simulations, and a first try.

run           a whole run on one page
secure_sum    a first try in three lines
delivery      carrying messages: dropouts, refusals, the clock, the observer
observer      watching a run
plain_sum     the sum without masks, to compare with
simulation    randomness from a seed, dropouts on schedule, identities made on the spot
clock         computing time by stage
allocation    reuse of freed memory
peak_memory   what the process has needed, for reports
"""

from sparsesecagg.simulate.observer import Observer, Transcript
from sparsesecagg.simulate.run import Cohort, InProcessRun, Outcome, run_round
from sparsesecagg.simulate.secure_sum import secure_sum

__all__ = ["Cohort", "InProcessRun", "Observer", "Outcome", "Transcript", "run_round", "secure_sum"]
