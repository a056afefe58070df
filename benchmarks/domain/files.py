"""The kernel file that the built-in team begins with, made without a run."""

from __future__ import annotations

from functools import cache

from egg.core.source import Task
from egg.expert.assemble import Written, graph_of, kernel_file
from egg.expert.deciding.first import first_recipe
from egg.expert.moves import Recipe
from egg.hardware.gpus import resolve

GPU = "H200"


def written(task: Task, gpu: str = GPU) -> Written:
    """As the coder's seed is: the recipe that promises to be the fastest, library calls allowed.

    Raises ``NothingToWrite``, ``Unfit`` or ``TaskError`` with the reason where there is no file.
    """
    graph, target = graph_of(task), resolve(gpu)

    @cache
    def write(recipe: Recipe) -> Written:
        return kernel_file(task, graph, recipe, target)

    return write(first_recipe(write, target, library=True))
