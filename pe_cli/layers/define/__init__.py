"""What layers are written with: their catalogue, helper and shared parts."""
