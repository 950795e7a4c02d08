"""Presets that train in a second, for the tests of commands and figures."""

from critattn.training.presets import Preset, Shape

# without prompts: any length will do
TEXT = Preset("smoke", Shape(layers=1, width=16, heads=2, hidden=24, length=16), 20, 4, 3e-3, 2, eval_blocks=2)
# calls of one window of the longest length, which tests need no more of
CALL_BYTES = 16 * TEXT.shape.length
# its loss leaves every bound at once
WILD = Preset("wild", TEXT.shape, 30, 4, 5.0, 0, eval_blocks=1)
