"""The graph between a program and a plan: versioned variables on devices, passes, pictures."""
