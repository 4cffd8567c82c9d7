"""The composition root: the command line and the local stack. It has no rule of the domain."""

__version__ = "0.1.0"
