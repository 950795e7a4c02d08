"""Trained transformers: their files, forward passes, and where their heads stand on the phase diagram."""
