"""From real numbers to words and back: stochastic rounding, headroom, private integers as digits.

rounding   `Quantizer`: scale, clip, round, count what was clipped
clips      how a clip follows the aggregate
digits     small non-negative integers (weights, counts) carried beside the values
"""

from sparsesecagg.quantize.digits import Digits
from sparsesecagg.quantize.rounding import Quantizer

__all__ = ["Digits", "Quantizer"]
