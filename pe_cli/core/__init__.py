"""What every other package builds on: errors with places, element types, places, strategies."""
