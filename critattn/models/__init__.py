"""Trained models: their files, their layers, and where the heads of those layers lie on the phase diagram."""
