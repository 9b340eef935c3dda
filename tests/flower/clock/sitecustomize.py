"""A clock that is wrong by as many seconds as CHAOS_CLOCK says; Python reads this file when it starts."""

import os
import time

_wrong = float(os.environ.get("CHAOS_CLOCK", "0"))
if _wrong:
    _right = time.time
    time.time = lambda: _right() + _wrong
