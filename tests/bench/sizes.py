"""A tiny workload, and limits that make round numbers."""

from llmpy.bench.workloads import Limits, Workload
from tests.tiny_run import CONFIG

TINY = Workload(CONFIG, B=2, T=8, warm_up=1, steps=5)
LIMITS = Limits(peak_gflops=200.0, bandwidth_gbs=50.0)
