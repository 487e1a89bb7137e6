"""What changes parameters: optimizers, schedules, decay, clipping, rows of tables."""
