"""Passes: functions from a program to a program, one file each. A pass changes no number."""
