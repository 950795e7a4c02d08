"""What is proved: theorems, the checks that decide them, and false variants that the same checks must refute."""

from critattn.theorems.balls import Certificate as Certificate
from critattn.theorems.balls import prove_positive as prove_positive
from critattn.theorems.certified import agrees as agrees
from critattn.theorems.certified import changes_at_most as changes_at_most
from critattn.theorems.certified import grid as grid
from critattn.theorems.certified import positive as positive
from critattn.theorems.certified import positive_from_zero as positive_from_zero
from critattn.theorems.exact import continuous_at as continuous_at
from critattn.theorems.exact import decided as decided
from critattn.theorems.exact import equal as equal
from critattn.theorems.exact import limit_is as limit_is
from critattn.theorems.exact import signs as signs
from critattn.theorems.expressions import enclosed as enclosed
from critattn.theorems.results import Grade as Grade
from critattn.theorems.results import Step as Step
from critattn.theorems.results import Verdict as Verdict
from critattn.theorems.results import argued as argued
from critattn.theorems.running import chosen as chosen
from critattn.theorems.running import load_theorem as load_theorem
from critattn.theorems.running import run as run
from critattn.theorems.theorem import Mutant as Mutant
from critattn.theorems.theorem import Outcome as Outcome
from critattn.theorems.theorem import Statement as Statement
from critattn.theorems.theorem import Theorem as Theorem
from critattn.theorems.theorem import examine as examine
