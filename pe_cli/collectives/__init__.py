"""Collectives: sums over devices and processes, always in the order of the devices, so that timing changes no bit."""
