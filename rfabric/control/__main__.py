"""`python -m rfabric.control`: the controller as a process of its own."""

from .launch import main

main()
