"""Published figures on blindness, the convention behind each, and what the stated definition gives; all computed."""

from critattn.blindness.errata import distances, shares
from critattn.blindness.errata.readings import PAPER as PAPER
from critattn.blindness.errata.readings import Erratum as Erratum
from critattn.blindness.errata.readings import Reading as Reading


def errata() -> tuple[Erratum, ...]:
    """All figures, in the order of the publication's subjects; each number is computed when this is called."""
    return (
        distances.thresholds(),
        distances.bloom(),
        distances.falcon(),
        distances.falcon_heads(),
        distances.mpt(),
        distances.storywriter(),
        distances.alibi(),
        *distances.schedules(),
        distances.log_distance(),
        distances.log_marks(),
        distances.explicit_log(),
        shares.row_share(),
        shares.matrix_share(),
        shares.clamp(),
        shares.cap(),
    )
