"""``python -m bench.fuzz``."""

import sys

from bench.fuzz.readers import main

sys.exit(main())
