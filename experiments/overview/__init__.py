"""The table of the README: real rounds of each system, one row each."""
