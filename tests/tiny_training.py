"""Presets that train in a second, for the tests of commands and figures."""

from critattn.training.presets import Preset, Shape

# without prompts: any length will do
TEXT = Preset("smoke", Shape(layers=1, width=16, heads=2, hidden=24, length=16), 20, 4, 3e-3, 2, eval_blocks=2)
# calls of one window of the longest length, which tests need no more of
CALL_BYTES = 16 * TEXT.shape.length
# the shortest length into which every prompt fits
PROMPTS = Preset(
    "small",
    Shape(layers=1, width=8, heads=1, hidden=8, length=96),
    steps=10,
    batch=2,
    learning_rate=3e-3,
    warmup=2,
    prompt_share=0.5,
    eval_blocks=1,
    eval_prompts=2,
)
PROMPT_CALL_BYTES = 16 * PROMPTS.shape.length
# two distances within the length, two beyond it
SHARES = (3 / 4, 7 / 8, 1, 3)
# its loss leaves every bound at once
WILD = Preset("wild", TEXT.shape, 30, 4, 5.0, 0, eval_blocks=1)
