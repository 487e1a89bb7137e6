"""What a run leaves behind: checkpoints, the run folder, fetches; written so that a pulled plug harms nothing."""
