"""What a step takes and why: profiles, traces, estimates, and reports of failed or hung steps."""
