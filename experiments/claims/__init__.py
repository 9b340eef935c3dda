"""The tables of docs/reproduction.md: `claim` (a row and its verdict), `theory`, `measured` (all others), `page`."""
