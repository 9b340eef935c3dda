"""The protocol in one process: simulations, and a first try.

run           a whole run on one page          secure_sum   a first try in three lines
delivery      carrying messages: dropouts, refusals, who watches, seconds, the plain sum to compare with
simulation    randomness from a seed, dropouts on schedule, identities made on the spot
memory        reuse of freed memory, and what the process has needed at most
"""

from sparsesecagg.simulate.delivery import Observer, Outcome, Transcript
from sparsesecagg.simulate.run import Cohort, InProcessRun, run_round
from sparsesecagg.simulate.secure_sum import secure_sum

__all__ = ["Cohort", "InProcessRun", "Observer", "Outcome", "Transcript", "run_round", "secure_sum"]
