"""Trainings below a Slurm of their own: a controller and two nodes on this machine, where Slurm is installed and this is root."""
