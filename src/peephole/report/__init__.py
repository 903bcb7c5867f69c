"""Pictures and pages, drawn from results."""
