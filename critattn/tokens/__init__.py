"""Token configurations, of one set of vectors and of queries that differ from keys; random scores; token files."""

from critattn.tokens.opposed import QueriesAndKeys as QueriesAndKeys
from critattn.tokens.opposed import WholeSource as WholeSource
from critattn.tokens.opposed import from_queries_and_keys as from_queries_and_keys
from critattn.tokens.opposed import near_opposed as near_opposed
from critattn.tokens.opposed import one_set as one_set
from critattn.tokens.opposed import opposed as opposed
from critattn.tokens.sources import MAX_ENTRIES as MAX_ENTRIES
from critattn.tokens.sources import ROWS_PER_KEY as ROWS_PER_KEY
from critattn.tokens.sources import STREAM_ABOVE as STREAM_ABOVE
from critattn.tokens.sources import RandomScores as RandomScores
from critattn.tokens.sources import ScoreSource as ScoreSource
from critattn.tokens.sources import Tokens as Tokens
from critattn.tokens.sources import TokenStream as TokenStream
from critattn.tokens.sources import check_norms as check_norms
from critattn.tokens.sources import from_array as from_array
from critattn.tokens.sources import load as load
from critattn.tokens.sources import near_simplex as near_simplex
from critattn.tokens.sources import normalise as normalise
from critattn.tokens.sources import random_scores as random_scores
from critattn.tokens.sources import simplex as simplex
from critattn.tokens.sources import stream_near_simplex as stream_near_simplex
