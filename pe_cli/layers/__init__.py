"""Layers: functions with fluid's names and defaults that append ops to the default main program."""
