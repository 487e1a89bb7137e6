"""The data of a job: user files, diagnostics, class weights, checks against the model."""
