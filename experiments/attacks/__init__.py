"""Every attack in both modes and several cohorts, for docs/threat-model.md."""
