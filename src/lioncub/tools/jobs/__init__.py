"""Training jobs to compare methods on: a model, its data, its loss, and learning rates that work."""

from lioncub.tools.jobs.catalogue import JOBS, load_job
from lioncub.tools.jobs.job import Job

__all__ = ["JOBS", "Job", "load_job"]
