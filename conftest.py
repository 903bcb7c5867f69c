"""Makes the code blocks of README.md, CONTRIBUTING.md and docs/ tests of their own."""

import os

from tools.documents import pages

os.environ["MPLBACKEND"] = "agg"  # no test may open a window

pytest_collect_file = pages.pytest()
