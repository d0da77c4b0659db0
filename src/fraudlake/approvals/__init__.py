"""Approvals: what a person asks for takes effect when a second person agrees; both are events of a chain."""
