"""The command `dovetail`: what is installed, and whether it works."""

from dovetail.cli.commands import main as main
from dovetail.cli.config import config_command, disable_option
from dovetail.cli.disagreements import disagreements
from dovetail.cli.doctor import doctor
from dovetail.cli.executors import executors
from dovetail.cli.explain import explain
from dovetail.cli.lock import lock_command
from dovetail.cli.new_executor import new_executor
from dovetail.cli.trace import trace

main.add_command(executors)
main.add_command(doctor)
main.add_command(disagreements)
main.add_command(new_executor)
main.add_command(explain)
main.add_command(trace)
main.add_command(config_command)
main.add_command(lock_command)
main.params.append(disable_option)
