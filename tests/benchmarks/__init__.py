"""Figures of speed and memory; each module is a command of its own."""

import os

# As the server does before it loads torch: threads that wait for each other by spinning make figures on a machine with other load
# several times worse than what is served.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
