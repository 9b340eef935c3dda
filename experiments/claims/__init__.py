"""Every claim of the paper with what was measured and a verdict, computed from the result files alone.

`claim` says what a claim is and what verdicts there are, `training` judges Figures 3, 5 and 6 with the wall clock,
`others` everything else, `page` writes the table of docs/reproduction.md.
"""
