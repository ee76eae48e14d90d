"""Training jobs to compare methods on: a model, its data, its loss, and learning rates that work."""

from lioncub.jobs.catalogue import JOBS, load_job
from lioncub.jobs.job import Job

__all__ = ["JOBS", "Job", "load_job"]
