"""What experiments share: `work` (checkpoints), `results` (files), `plotting`, `training` and its `pictures`."""
