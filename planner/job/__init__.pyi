from .job import Job as Job
from .resolution import resolve as resolve
from .targets import refusal as refusal
