"""What a smaller α costs in accuracy: everything else alike, several seeds."""
