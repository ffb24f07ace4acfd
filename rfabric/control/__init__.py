"""Between plan and switches: epochs, rules, the REST schema, and the seam to Ryu or os-ken."""

from .launch import app_file, command, run

__all__ = ["app_file", "command", "run"]
