"""Logged decisions: readers, checks, filters, converters, and the tasks we know by name.

Files become a `Log` (rows as they were written), a `Log` becomes `Transitions` (what training sees). Nothing
here needs JAX.
"""

from bcol.data.check import Problem as Problem
from bcol.data.check import check as check
from bcol.data.columns import Columns as Columns
from bcol.data.d4rl import read_d4rl as read_d4rl
from bcol.data.d4rl import write_d4rl as write_d4rl
from bcol.data.describe import Summary as Summary
from bcol.data.describe import describe as describe
from bcol.data.download import fetch as fetch
from bcol.data.filters import normalize_states as normalize_states
from bcol.data.filters import top_fraction as top_fraction
from bcol.data.filters import transform_reward as transform_reward
from bcol.data.load import load_dataset as load_dataset
from bcol.data.load import read_log as read_log
from bcol.data.log import Log as Log
from bcol.data.log import make_log as make_log
from bcol.data.log import with_timeouts as with_timeouts
from bcol.data.minari import read_minari as read_minari
from bcol.data.minari import write_minari as write_minari
from bcol.data.npz import read_npz as read_npz
from bcol.data.table import read_table as read_table
from bcol.data.tasks import TASKS as TASKS
from bcol.data.tasks import Task as Task
from bcol.data.tasks import normalized_score as normalized_score
from bcol.data.transitions import Normalization as Normalization
from bcol.data.transitions import Spec as Spec
from bcol.data.transitions import Transitions as Transitions
from bcol.data.transitions import pair as pair
