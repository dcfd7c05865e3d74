"""The headless commands: one module each, all over the same core as the screens."""
